// The value side of a chunk where every value channel decays on its own (gv).
//
// With b_t[j] the decay of column j at token t, R_t = q~_t S_0 the read of the state before the
// chunk and P the scores of the key side,
//
//   o_t[j]        = b_0 .. b_t[j] R_t[j] + sum_{s <= t} P[t, s] b_{s+1} .. b_t[j] v_s[j]
//   S_{n-1}[i, j] = b_0 .. b_{n-1}[j] S_0[i, j] + sum_s k~_s[i] b_{s+1} .. b_{n-1}[j] v_s[j]
//
// Values are kept decayed through the end of a block of kBlockTokens tokens and move on by a block
// at a time, as the keys do in scores.inl.hpp. So by the end of the chunk they are what the update
// of the state takes.
#pragma once

#include "cpu/simd/vector/decays.inl.hpp"
#include "scores.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk {

struct ChunkValues {
  RowSource v, gv;
  Balance balance;
  OutputRows o;
  std::int64_t chunk = 0;
  std::int64_t columns = 0;  // of the tile
  std::int64_t padded = 0;   // in whole vectors
  float* rows = nullptr;     // [chunk, padded]: v
  float* o_rows = nullptr;   // [chunk, padded]
  float* decays = nullptr;   // [padded], with a gv; over all of a chunk
  float* carries = nullptr;  // [padded], with a gv
};

inline constexpr int kValueVectors = 2;  // columns together; the sums of two blocks of tokens

// In: R in `o`. Out: o, and `rows` decayed through the end of the chunk.
template <int kVectors>
[[gnu::always_inline]] inline void decay_value_columns(const ChunkValues& values,
                                                       const ChunkRows& gv, const TokenLogs& logs,
                                                       const Panels& scores, float* o,
                                                       std::int64_t o_step, std::int64_t column) {
  F32 from_start[kVectors];
  F32 log_sum[kVectors];
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) {
    from_start[j] = broadcast(1.0F);
    log_sum[j] = load(values.carries + column + j * kLanes);
  }
  float* const rows = values.rows + column;
  for (std::int64_t token = 0; token < values.chunk; token += kBlockTokens) {
    F32 decay[kVectors][kBlockTokens];
    F32 sums[kBlockTokens][kVectors];
    F32 total[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
#pragma GCC unroll 4
      for (int t = 0; t < kBlockTokens; ++t) {
        decay[j][t] = load(gv.row[token + t] + column + j * kLanes) + logs.log[token + t];
        log_sum[j] += decay[j][t];
        sums[t][j] = F32{};
      }
      exp_each(decay[j]);
      total[j] = in_register(decay[j][0] * decay[j][1]);
      total[j] = in_register(total[j] * decay[j][2]);
      total[j] = in_register(total[j] * decay[j][3]);
    }
    static_assert(kBlockTokens == 4);
    // Values of earlier blocks, decayed through the end of the one before.
    for (std::int64_t s = 0; s < token; ++s) {
      F32 value[kVectors];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) value[j] = load(rows + s * values.padded + j * kLanes);
#pragma GCC unroll 4
      for (int t = 0; t < kBlockTokens; ++t) {
        const F32 weight = in_register(broadcast(*scores.at(token + t, s)));
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) sums[t][j] = fma(weight, value[j], sums[t][j]);
      }
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        store(rows + s * values.padded + j * kLanes, value[j] * total[j]);
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      F32 written[kBlockTokens];
      F32 in_block{};
#pragma GCC unroll 4
      for (int t = 0; t < kBlockTokens; ++t) {
        float* const out = o + (token + t) * o_step + column + j * kLanes;
        in_block = t == 0 ? decay[j][0] : in_register(in_block * decay[j][t]);
        written[t] = load(rows + (token + t) * values.padded + j * kLanes);
        // The state's part, the earlier blocks' and this one's, in this order.
        F32 sum = in_register(load(out) * in_register(from_start[j] * in_block));
        sum = fma(sums[t][j], in_block, sum);
#pragma GCC unroll 4
        for (int s = 0; s <= t; ++s) {
          if (s < t) written[s] = in_register(written[s] * decay[j][t]);
          sum = fma(broadcast(*scores.at(token + t, token + s)), written[s], sum);
        }
        store(out, sum);
      }
#pragma GCC unroll 4
      for (int t = 0; t < kBlockTokens; ++t) {
        store(rows + (token + t) * values.padded + j * kLanes, written[t]);
      }
      from_start[j] = in_register(from_start[j] * in_block);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) {
    F32 decay[1] = {log_sum[j]};
    store(values.carries + column + j * kLanes, exp_each(decay));
    store(values.decays + column + j * kLanes, decay[0]);
  }
}

[[gnu::noinline]] inline void decay_values(const ChunkValues& values, const ChunkRows& gv,
                                           const TokenLogs& logs, const Panels& scores, float* o,
                                           std::int64_t o_step) {
  std::int64_t column = 0;
  for (; values.padded - column >= kValueVectors * kLanes; column += kValueVectors * kLanes) {
    decay_value_columns<kValueVectors>(values, gv, logs, scores, o, o_step, column);
  }
  if (column < values.padded) decay_value_columns<1>(values, gv, logs, scores, o, o_step, column);
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk
