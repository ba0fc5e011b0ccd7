// Decays of each channel (gk) over a whole chunk, where they are moderate. With A_t[i] the decay of
// channel i from the beginning of the chunk until token t, t included,
//
//   P[t, s]  = sum_i (q_t[i] A_t[i]) (k_s[i] / A_s[i])
//   S        = A_{n-1} (S_0 + sum_s (k_s / A_s)' v_s)
//
// so rows of q and k take their factors and the rest is as without a gate. Each product is what it
// is without a division, times 1 + a rounding: no sum gets less exact by it, only larger, by
// exp(kMaxChunkLog) at most. Stronger decays take blocks of 16 tokens: key_blocks.inl.hpp.
#pragma once

#include "keys.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

// exp(40) is 2e17: k v may be as large as 1e19 until sums of 64 of them leave the range of fp32.
inline constexpr float kMaxChunkLog = 40.0F;

// exp(x) and exp(-x), |x| <= kMaxChunkLog, to 2^-14: what is rounded to bf16 does not show it.
struct DecayAndInverse {
  F32 decay;
  F32 inverse;
};

[[gnu::always_inline]] inline DecayAndInverse decay_and_inverse(F32 log) {
#if defined(__AVX512DQ__)
  // 2^part on [0, 1), interpolated: off by 3.5e-6 of itself.
  constexpr float kCoefficients[] = {5.17449978e-2F, 2.41604357e-1F, 6.92972922e-1F, 1.00000349F};
  constexpr int kDownToInteger = 1;
  const F32 power = log * kLog2OfE;
  const F32 part = (F32)_mm512_maskz_reduce_ps(__mmask16(-1), (__m512)power, kDownToInteger);
  F32 p = broadcast(1.36703095e-2F);
#pragma GCC unroll 4
  for (const float coefficient : kCoefficients) p = fma(p, part, broadcast(coefficient));
  const __m512 decay = _mm512_maskz_scalef_ps(__mmask16(-1), (__m512)p, (__m512)power);
  return {(F32)decay, (F32)_mm512_maskz_rcp14_ps(__mmask16(-1), decay)};
#else
  F32 decay[1] = {log};
  exp_each(decay);
  return {decay[0], 1.0F / decay[0]};
#endif
}

// Two vectors of channels of 16 tokens. Channels are in whole vectors.
struct DividedBlock {
  const HalfRows& q;
  const HalfRows& k;
  const ChunkRows& gk;
  const float* logs;         // of the block
  std::int64_t token;        // of the chunk
  std::int64_t copies_step;  // bytes
};

// Rows of q go where products take them, those of k to the copies. Adds to `log_sum` the logs of
// the tokens, to `magnitude` their magnitudes.
[[gnu::always_inline]] inline void divide_block(const TileKeys& keys, const DividedBlock& block,
                                                std::int64_t i, F32 (&log_sum)[2],
                                                F32 (&magnitude)[2]) {
  const bool has_second = i + kLanes < round_up_to_lanes(keys.channels);
  float* queries = keys.queries.at(block.token / kTileRows, i / kTileDepth);
  char* copy = keys.k.copies + block.token * block.copies_step + 2 * i;
#pragma GCC unroll 4
  for (std::int64_t t = 0; t < kTileRows; ++t) {
    const float* const gates = block.gk.row[t] + i;
    const F32 log[2] = {load(gates) + block.logs[t],
                        (has_second ? load(gates + kLanes) : F32{}) + block.logs[t]};
    DecayAndInverse factor[2];
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      log_sum[j] += log[j];
      magnitude[j] += as_f32(as_bits(log[j]) & 0x7fffffffU);
      factor[j] = decay_and_inverse(log_sum[j]);
    }
    const std::int64_t token = block.token + t;
    store(queries, join_bf16(block.q.vector(token, i) * factor[0].decay,
                             block.q.vector(token, i + kLanes) * factor[1].decay));
    const F32 key = join_bf16(block.k.vector(token, i) * factor[0].inverse,
                              block.k.vector(token, i + kLanes) * factor[1].inverse);
    __builtin_memcpy(copy, &key, sizeof(key));
    queries += kLanes;
    copy += block.copies_step;
  }
}

// Whether all are at most kMaxChunkLog.
[[gnu::noinline]] inline bool are_moderate(const float* magnitudes, std::int64_t width) {
  U32 too_large{};
  for (std::int64_t i = 0; i < width; i += kLanes) {
    // The other way round a NaN would pass.
    too_large |= load(magnitudes + i) <= broadcast(kMaxChunkLog) ? U32{} : ~U32{};
  }
  std::uint32_t any = 0;
  for (int lane = 0; lane < kLanes; ++lane) any |= too_large[lane];
  return any == 0;
}

// Queries, and in `k` the rows of keys, with their decays; leaves the sums of logs in `decays`.
// Returns false where a log is too large, and then all of it is to be made in another way.
[[gnu::noinline]] inline bool divide_channel_decays(const TileKeys& keys, const ChunkSpan& span,
                                                    const TokenLogs& logs, const HalfRows& q,
                                                    HalfRows& k) {
  zero_floats(keys.decays, keys.width);
  zero_floats(keys.magnitudes, keys.width);
  const std::int64_t step = keys.width * 2;
  for (std::int64_t index = 0; index < span.blocks(); ++index) {
    const std::int64_t token = index * kTileRows;
    ChunkRows gk;
    chunk_rows(keys.gk, span.token + token, span.present_in_block(index), kTileRows, gk);
    const DividedBlock block{
        .q = q, .k = k, .gk = gk, .logs = logs.log + token, .token = token, .copies_step = step};
    for (std::int64_t i = 0; i < keys.width; i += kTileDepth) {
      F32 log_sum[2] = {load(keys.decays + i), load(keys.decays + i + kLanes)};
      F32 magnitude[2] = {load(keys.magnitudes + i), load(keys.magnitudes + i + kLanes)};
      divide_block(keys, block, i, log_sum, magnitude);
      store(keys.decays + i, log_sum[0]);
      store(keys.decays + i + kLanes, log_sum[1]);
      store(keys.magnitudes + i, magnitude[0]);
      store(keys.magnitudes + i + kLanes, magnitude[1]);
    }
    if (!are_moderate(keys.magnitudes, keys.width)) return false;
  }
  for (std::int64_t t = 0; t < span.padded; ++t) k.of[t] = keys.k.copies + t * step;
  return true;
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles
