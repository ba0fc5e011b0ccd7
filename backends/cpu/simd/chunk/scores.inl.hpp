// The scores of a chunk's tokens: scores[t, s] = sum_i Q[t, i] K[s, i], s <= t.
//
// Both operands lie in panels, and so does the result: [sources / 16][tokens][16], which makes it
// an operand of multiply_tokens(). Lanes are channels: a block of targets and sources is summed up
// in registers over all channels and its lanes are added up at the end. That needs no transpose,
// leaves out the blocks above the diagonal, and a decay between two blocks is one multiplication
// for each source.
//
// Where channels decay, each on its own (gk), rows are kept relative to the edges of blocks of
// kBlockTokens tokens:
//   Q[t] decayed from the beginning of t's block through t,
//   K[s] decayed from behind s through the end of the block before t's.
// The second moves on by a block at a time, so by the end of the chunk K has become what the update
// of the state takes. Decays are only multiplied: nothing overflows that does not in the
// recurrence, and a zero is exact.
#pragma once

#include "cpu/simd/vector/panels.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk {

inline constexpr int kBlockTokens = 4;  // divides every chunk

// Targets whose sums with kBlockTokens sources fit into registers.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kBlockTargets = 4;
#else
inline constexpr int kBlockTargets = 2;
#endif

// result[t, s] for kBlockTargets x kBlockTokens of them. `decays`, where kDecay, is one row, by
// which the sources are multiplied afterwards.
template <bool kDecay>
[[gnu::noinline]] void score_block(const Panels& targets, const Panels& sources,
                                   std::int64_t channels, const float* decays, float* result) {
  F32 sums[kBlockTargets * kBlockTokens];
#pragma GCC unroll 16
  for (F32& sum : sums) sum = F32{};
  float* source = sources.data;
  const float* target = targets.data;
  for (std::int64_t panel = 0; panel < channels; panel += kPanelWidth) {
#pragma GCC unroll 1
    for (std::int64_t lane = 0; lane < kPanelWidth; lane += kLanes) {
      F32 from[kBlockTokens];
#pragma GCC unroll 4
      for (int s = 0; s < kBlockTokens; ++s) from[s] = load(source + s * kPanelWidth + lane);
#pragma GCC unroll 4
      for (int t = 0; t < kBlockTargets; ++t) {
        const F32 to = load(target + t * kPanelWidth + lane);
#pragma GCC unroll 4
        for (int s = 0; s < kBlockTokens; ++s) {
          sums[t * kBlockTokens + s] = fma(to, from[s], sums[t * kBlockTokens + s]);
        }
      }
      if constexpr (kDecay) {
        const F32 decay = load(decays + panel + lane);
#pragma GCC unroll 4
        for (int s = 0; s < kBlockTokens; ++s) {
          store(source + s * kPanelWidth + lane, from[s] * decay);
        }
      }
    }
    source += sources.size;
    target += targets.size;
  }
  alignas(64) float totals[round_up_to_lanes(kBlockTargets * kBlockTokens)];
  sum_lanes<kBlockTargets * kBlockTokens>(sums, totals);
  for (int t = 0; t < kBlockTargets; ++t) {
    __builtin_memcpy(result + t * kPanelWidth, totals + t * kBlockTokens,
                     kBlockTokens * sizeof(float));
  }
}

// Tokens [t, t + kBlockTokens) with [s, s + kBlockTokens). `channels` is rounded up to panels.
template <bool kDecay>
[[gnu::always_inline]] inline void score_tokens(const Panels& q, const Panels& k, std::int64_t t,
                                                std::int64_t s, std::int64_t channels,
                                                const float* decays, const Panels& scores) {
  const Panels sources{k.at(s, 0), k.size};
  for (int first = 0; first < kBlockTokens; first += kBlockTargets) {
    const Panels targets{q.at(t + first, 0), q.size};
    float* const result = scores.at(t + first, s);
    if (kDecay && first + kBlockTargets == kBlockTokens) {
      score_block<kDecay>(targets, sources, channels, decays, result);
    } else {
      score_block<false>(targets, sources, channels, nullptr, result);
    }
  }
}

// Pairs of a chunk whose decays, if any, are per token. Blocks on the diagonal are whole: what is
// above it is left to the caller, as are the decays. Blocks above the diagonal are not written.
inline void score_chunk(const Panels& q, const Panels& k, std::int64_t chunk, std::int64_t channels,
                        const Panels& scores) {
  for (std::int64_t t = 0; t < chunk; t += kBlockTokens) {
    for (std::int64_t s = 0; s <= t; s += kBlockTokens) {
      score_tokens<false>(q, k, t, s, channels, nullptr, scores);
    }
  }
}

// Pairs of different blocks, with decays per channel. `block_decays` is [blocks, channels]: over
// all tokens of a block. Leaves K decayed through the end of the chunk.
inline void score_blocks(const Panels& q, const Panels& k, const float* block_decays,
                         std::int64_t chunk, std::int64_t channels, const Panels& scores) {
  for (std::int64_t t = kBlockTokens; t < chunk; t += kBlockTokens) {
    const float* const decays = block_decays + t / kBlockTokens * channels;
    for (std::int64_t s = 0; s < t; s += kBlockTokens) {
      score_tokens<true>(q, k, t, s, channels, decays, scores);
    }
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk
