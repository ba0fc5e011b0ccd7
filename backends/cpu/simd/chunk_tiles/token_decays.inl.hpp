// Decays that all channels share (g, gamma) as factors of rows, where they are moderate. With c_t
// the sum of the logs until token t, t included, and S = exp(c) S',
//
//   o_t = exp(c_t) (q_t S'_0 + sum_{s <= t} (q_t . k_s) exp(-c_s) v_s)
//   S'  = S'_0 + sum_s k_s' exp(-c_s) v_s
//
// so rows of o and of v take their factors, S' does not decay, and the rest is as without a gate.
// Sums of logs go on from chunk to chunk until they leave +-kMaxFactorLog; then S' takes what
// they have come to. Logs that are too large within one chunk: cpu/simd/vector/decays.inl.hpp.
#pragma once

#include "cpu/simd/vector/decays.inl.hpp"
#include "operands.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

// exp(40) is 2e17: k v may be as large as 1e19 until sums of 64 of them leave the range of fp32.
inline constexpr float kMaxFactorLog = 40.0F;

// Of the tokens of a chunk.
struct TokenFactors {
  alignas(64) float of_values[kMaxChunk];   // exp(-c_s)
  alignas(64) float of_outputs[kMaxChunk];  // exp(c_t) times a scale
};

// The state is exp(log) times what is kept of it. Sums of many small logs need more than fp32.
struct StateScale {
  double log = 0.0;

  // The factor of what is kept where `log` becomes `now`.
  float move_to(double now) {
    const auto factor = static_cast<float>(__builtin_exp(log - now));
    log = now;
    return factor;
  }
};

// Where sums of logs begin so that all of them stay in range: at `log` if they may, else as near to
// 0 as they may. `fall` and `rise` are how far they go down and up at most. NaN where they cannot.
inline double scale_for(double log, float fall, float rise) {
  constexpr double kLimit = kMaxFactorLog;
  const auto fits = [&](double at) { return at + fall >= -kLimit && at + rise <= kLimit; };
  if (fits(log)) return log;
  if (fits(0.0)) return 0.0;
  const double middle = -0.5 * (double{fall} + double{rise});
  return fits(middle) ? middle : __builtin_nan("");
}

// Lanes move up by kShift, or down by -kShift; those of `fill` come in.
template <int kShift, std::size_t... kIndex>
[[gnu::always_inline]] inline F32 shift_lanes(F32 x, F32 fill, std::index_sequence<kIndex...>) {
  return __builtin_shufflevector(
      x, fill,
      (int(kIndex) - kShift < 0 || int(kIndex) - kShift >= kLanes ? kLanes + int(kIndex)
                                                                  : int(kIndex) - kShift)...);
}

// Lane i: the sum of lanes 0 to i.
[[gnu::always_inline]] inline F32 running_sums(F32 x) {
  constexpr auto kIndices = std::make_index_sequence<kLanes>();
  x += shift_lanes<1>(x, F32{}, kIndices);
  x += shift_lanes<2>(x, F32{}, kIndices);
  x += shift_lanes<4>(x, F32{}, kIndices);
  return x + shift_lanes<8>(x, F32{}, kIndices);
}

// How far sums of the logs go down and up at most; NaN where one of them is.
struct TokenLogRange {
  float fall = 0.0F;
  float rise = 0.0F;
};

[[gnu::always_inline]] inline TokenLogRange range_of(const TokenLogs& logs, std::int64_t padded) {
  F32 sums[2] = {};
  for (std::int64_t t = 0; t < padded; t += kLanes) {
    const F32 log = load(logs.log + t);
    sums[0] += log >= F32{} ? F32{} : log;  // the other way round a NaN would pass
    sums[1] += log >= F32{} ? log : F32{};
  }
  alignas(64) float range[kLanes];
  sum_lanes<2>(sums, range);
  return {.fall = range[0], .rise = range[1]};
}

// The factors of a chunk whose sums of logs begin at `scale`, which is moved to their end.
[[gnu::noinline]] inline void token_factors(const TokenLogs& logs, std::int64_t padded,
                                            float of_outputs, StateScale& scale,
                                            TokenFactors& factors) {
  float before = 0.0F;
  for (std::int64_t t = 0; t < padded; t += kLanes) {
    const F32 sums = running_sums(load(logs.log + t)) + before;
    before = sums[kLanes - 1];
    const F32 log = sums + static_cast<float>(scale.log);
    F32 factor[2] = {log, -log};
    exp_each(factor);
    store(factors.of_outputs + t, factor[0] * of_outputs);
    store(factors.of_values + t, factor[1]);
  }
  scale.log += before;
}

// ---- decays of any strength ----
//
// Decays that all channels share (g, gamma), over the tokens of a chunk, for products in tiles.
//
// Only decays of different tokens are multiplied, and logs added, so a log decay of -inf resets
// exactly. With a_t the decay of token t, and blocks of 16 tokens,
//
//   P[t, s] = (q_t . k_s) a_{s+1} .. a_t
//
// has a factor for each row and one for each column where t and s are in different blocks: from the
// beginning of t's block, and from s until there.

struct TileTokenDecays {
  static constexpr std::int64_t kBlocks = kMaxChunk / kTileRows;

  alignas(64) float of_token[kMaxChunk];
  alignas(64) float through[kMaxChunk];   // from the beginning of the chunk, itself included
  alignas(64) float behind[kMaxChunk];    // after it until the end of the chunk
  alignas(64) float in_block[kMaxChunk];  // from the beginning of its block, itself included
  // until[b][s]: after s until the beginning of block b, of the blocks before b.
  alignas(64) float until[kBlocks][kMaxChunk];
};

// Ones come in.
template <int kShift>
[[gnu::always_inline]] inline F32 shift_lanes(F32 x) {
  return shift_lanes<kShift>(x, broadcast(1.0F), std::make_index_sequence<kLanes>());
}

// Lane i: the product of lanes 0 to i, or, where kStep is negative, i to 15.
template <int kStep>
[[gnu::always_inline]] inline F32 running_products(F32 x) {
  x *= shift_lanes<kStep>(x);
  x *= shift_lanes<2 * kStep>(x);
  x *= shift_lanes<4 * kStep>(x);
  return x * shift_lanes<8 * kStep>(x);
}

// Returns the decay over the whole chunk in all lanes; `carries` is one vector, as
// exp_with_carry() has it.
[[gnu::noinline]] inline F32 tile_token_decays(const TokenLogs& logs, std::int64_t padded,
                                               float* carries, TileTokenDecays& decays) {
  const std::int64_t blocks = padded / kTileRows;
  F32 log_sum{};
  F32 after[TileTokenDecays::kBlocks];
  float of_block[TileTokenDecays::kBlocks];
  float before = 1.0F;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t token = block * kTileRows;
    F32 decay[1] = {load(logs.log + token)};
    log_sum += decay[0];
    exp_each(decay);
    const F32 products = running_products<1>(decay[0]);
    after[block] = shift_lanes<-1>(running_products<-1>(decay[0]));
    of_block[block] = products[kLanes - 1];
    store(decays.of_token + token, decay[0]);
    store(decays.in_block + token, products);
    store(decays.through + token, products * before);
    before *= of_block[block];
  }
  for (std::int64_t block = 0; block < blocks; ++block) {
    F32 until = after[block];
    for (std::int64_t later = block + 1; later < blocks; ++later) {
      store(decays.until[later] + block * kTileRows, until);
      until *= of_block[later];
    }
    store(decays.behind + block * kTileRows, until);
  }
  return exp_of_lanes_with_carry(log_sum, carries);
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles
