// What the tokens of a chunk have to do with one another: A[t, s] = sum_i Q[t, i] K[s, i], s <= t.
//
// Both operands lie in panels, and so does the result: [sources / 16][tokens][16], which makes it
// an operand of multiply_tokens(). Lanes are channels: a block of targets and sources is summed up
// in registers over all channels and its lanes are added up at the end. That needs no transpose,
// leaves out the blocks above the diagonal, and a decay between two blocks is one multiplication
// for each source.
//
// Where channels decay, each on its own (gk), rows are kept relative to the edges of blocks of
// kPairTokens tokens:
//   Q[t] decayed from the beginning of t's block through t,
//   K[s] decayed from behind s through the end of the block before t's.
// The second moves on by a block at a time, so by the end of the chunk K has become what the update
// of the state takes. Decays are only multiplied: nothing overflows that does not in the
// recurrence, and a zero is exact.
#pragma once

#include "cpu/simd/vector/panels.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk {

inline constexpr int kPairTokens = 4;  // divides every chunk

// Targets whose sums with kPairTokens sources fit into registers.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kPairTargets = 4;
#else
inline constexpr int kPairTargets = 2;
#endif

// result[t, s] for kPairTargets x kPairTokens of them. `decays`, where kDecay, is one row, by which
// the sources are multiplied afterwards.
template <bool kDecay>
[[gnu::noinline]] void pair_block(const Panels& targets, const Panels& sources,
                                  std::int64_t channels, const float* decays, float* result) {
  F32 sums[kPairTargets * kPairTokens];
#pragma GCC unroll 16
  for (F32& sum : sums) sum = F32{};
  float* source = sources.data;
  const float* target = targets.data;
  for (std::int64_t panel = 0; panel < channels; panel += kPanelWidth) {
#pragma GCC unroll 1
    for (std::int64_t lane = 0; lane < kPanelWidth; lane += kLanes) {
      F32 from[kPairTokens];
#pragma GCC unroll 4
      for (int s = 0; s < kPairTokens; ++s) from[s] = load(source + s * kPanelWidth + lane);
#pragma GCC unroll 4
      for (int t = 0; t < kPairTargets; ++t) {
        const F32 to = load(target + t * kPanelWidth + lane);
#pragma GCC unroll 4
        for (int s = 0; s < kPairTokens; ++s) {
          sums[t * kPairTokens + s] = fma(to, from[s], sums[t * kPairTokens + s]);
        }
      }
      if constexpr (kDecay) {
        const F32 decay = load(decays + panel + lane);
#pragma GCC unroll 4
        for (int s = 0; s < kPairTokens; ++s) {
          store(source + s * kPanelWidth + lane, from[s] * decay);
        }
      }
    }
    source += sources.size;
    target += targets.size;
  }
  alignas(64) float totals[round_up_to_lanes(kPairTargets * kPairTokens)];
  sum_lanes<kPairTargets * kPairTokens>(sums, totals);
  for (int t = 0; t < kPairTargets; ++t) {
    __builtin_memcpy(result + t * kPanelWidth, totals + t * kPairTokens,
                     kPairTokens * sizeof(float));
  }
}

// Tokens [t, t + kPairTokens) with [s, s + kPairTokens). `channels` is rounded up to panels.
template <bool kDecay>
[[gnu::always_inline]] inline void pair_tokens(const Panels& q, const Panels& k, std::int64_t t,
                                               std::int64_t s, std::int64_t channels,
                                               const float* decays, const Panels& pairs) {
  const Panels sources{k.at(s, 0), k.size};
  for (int first = 0; first < kPairTokens; first += kPairTargets) {
    const Panels targets{q.at(t + first, 0), q.size};
    float* const result = pairs.at(t + first, s);
    if (kDecay && first + kPairTargets == kPairTokens) {
      pair_block<kDecay>(targets, sources, channels, decays, result);
    } else {
      pair_block<false>(targets, sources, channels, nullptr, result);
    }
  }
}

// Pairs of a chunk whose decays, if any, are per token. Blocks on the diagonal are whole: what is
// above it is left to the caller, as are the decays. Blocks above the diagonal are not written.
inline void pair_chunk(const Panels& q, const Panels& k, std::int64_t chunk, std::int64_t channels,
                       const Panels& pairs) {
  for (std::int64_t t = 0; t < chunk; t += kPairTokens) {
    for (std::int64_t s = 0; s <= t; s += kPairTokens) {
      pair_tokens<false>(q, k, t, s, channels, nullptr, pairs);
    }
  }
}

// Pairs of different blocks, with decays per channel. `block_decays` is [blocks, channels]: over
// all tokens of a block. Leaves K decayed through the end of the chunk.
inline void pair_blocks(const Panels& q, const Panels& k, const float* block_decays,
                        std::int64_t chunk, std::int64_t channels, const Panels& pairs) {
  for (std::int64_t t = kPairTokens; t < chunk; t += kPairTokens) {
    const float* const decays = block_decays + t / kPairTokens * channels;
    for (std::int64_t s = 0; s < t; s += kPairTokens) {
      pair_tokens<true>(q, k, t, s, channels, decays, pairs);
    }
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk
