// Pairs of tokens of two halves, of exact_intra_chunk.cuh: the rows that each half gives the other,
// decayed to the boundary between them, their part of A, and what tokens get.
#pragma once

#include "cuda/gla/exact_runs.cuh"

namespace attune::cuda::gla {

/// Of a block that takes 64 channels of a chunk at a time.
template <class T, bool kTiled>
class ExactHalves : public ExactBase<T, kTiled, ExactIntraChunkShared> {
  using Base = ExactBase<T, kTiled, ExactIntraChunkShared>;

 protected:
  using Base::at_, Base::p_, Base::s_, Base::forget;
  using Base::Base;

  /// A 16 x 16 block of A whose pairs are of halves at a level.
  struct HalfBlock {
    int level;
    int row;
    int column;
  };

  /// Whether this warp's tokens are of the later half at a level, and the warps of its half.
  __device__ bool is_later(int level) const { return (at_.warp >> level & 1) != 0; }
  __device__ int half_begin(int level) const { return at_.warp >> level << level; }
  __device__ int half_end(int level) const { return half_begin(level) + (1 << level); }
  /// The decay from the boundary to this warp's tokens, or from them to it.
  template <int kLevel>
  __device__ __forceinline__ float2 to_boundary() const {
    constexpr int kMost = (1 << kLevel) - 1;
    return is_later(kLevel)
               ? over_warps<kMost>(s_.decays, half_begin(kLevel), at_.warp, at_.lane)
               : over_warps<kMost>(s_.decays, at_.warp + 1, half_end(kLevel), at_.lane);
  }
  __device__ __forceinline__ void to_boundaries(float2 (&boundary)[kLevels]) const {
    boundary[0] = to_boundary<0>();
    boundary[1] = to_boundary<1>();
    boundary[2] = to_boundary<2>();
  }

  __device__ __forceinline__ void put_halves(Run& run) {
    float2 boundary[kLevels];
    to_boundaries(boundary);
    float2 since{1.0F, 1.0F};
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      since = times(since, run.decay[i]);
      put_later_or_earlier<true>(boundary, times(since, unpack<T>(run.x[i])), i);
    }
    forget(run);
    float2 until{1.0F, 1.0F};
#pragma unroll
    for (int i = kRun - 1; i >= 0; --i) {
      put_later_or_earlier<false>(boundary, times(until, unpack<T>(run.y[i])), i);
      until = times(until, run.decay[i]);
    }
  }
  template <bool kLater>
  __device__ __forceinline__ void put_later_or_earlier(const float2 (&boundary)[kLevels],
                                                       float2 value, int i) {
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (is_later(level) != kLater) continue;
      const float2 decayed = times(boundary[level], value);
      *reinterpret_cast<std::uint32_t*>(s_.halves[level].bytes[0] +
                                        tile_byte(at_.position(i), at_.channel())) =
          pack<T>(decayed.x, decayed.y);
    }
  }

  // Ten blocks have pairs of halves: four at level 2, two at level 1, and the diagonal at level 0.
  __device__ int half_blocks() const { return at_.warp < 6 ? 1 : 2; }
  __device__ HalfBlock half_block(int i) const {
    if (at_.warp < 4) return {2, 2 + at_.warp / 2, at_.warp % 2};
    if (at_.warp < 6) return {1, 2 * at_.warp - 7, 2 * at_.warp - 8};
    const int diagonal = 2 * (at_.warp - 6) + i;
    return {0, diagonal, diagonal};
  }

  /// Adds to them, or begins them.
  __device__ __forceinline__ void add_half_scores(bool first) {
    const int blocks = half_blocks();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i >= blocks) continue;
      const HalfBlock block = half_block(i);
      const std::uint32_t panel = shared_address(&s_.halves[block.level]);
      float sums[2][4] = {};
      if (!first) load_half_scores(sums, i);
#pragma unroll
      for (int k = 0; k < kPanelChannels; k += kBlock) {
        std::uint32_t left[4];
        std::uint32_t right[4];
        load_left<false>(left, panel, at_.lane, block.row * kBlock, k);
        load_right_rows(right, panel, at_.lane, block.column * kBlock, k);
        multiply_block<T>(sums, left, right);
      }
#pragma unroll
      for (int e = 0; e < 8; ++e) s_.half_scores[i][e / 4][e % 4][threadIdx.x] = sums[e / 4][e % 4];
    }
  }
  __device__ __forceinline__ void load_half_scores(float (&sums)[2][4], int i) const {
#pragma unroll
    for (int e = 0; e < 8; ++e) sums[e / 4][e % 4] = s_.half_scores[i][e / 4][e % 4][threadIdx.x];
  }

  /// Puts what each token gets from the other half in the place of what it gives.
  __device__ __forceinline__ void exchange_halves() {
    exchange_halves<2>(), exchange_halves<1>(), exchange_halves<0>();
  }
  template <int kLevel>
  __device__ __forceinline__ void exchange_halves() {
    constexpr int kColumns = kPanelChannels / 2;  // of a warp
    const int block = at_.warp / 2;
    const int column = at_.warp % 2 * kColumns;
    const std::uint32_t p = shared_address(&s_.p);
    float got[kColumns / kBlock][2][4] = {};
    std::uint32_t left[4];
    if constexpr (kLevel == 0) {  // the lower left 8 x 8 of the diagonal block, and its transpose
      load_left<false>(left, p, at_.lane, block * kBlock, block * kBlock);
      left[0] = left[3] = 0U;
      left[2] = transpose_matrix(left[1]);
      add_half<kLevel>(got, left, block, column);
    } else {
      const int first = (block >> (kLevel - 1) ^ 1) << (kLevel - 1);
#pragma unroll
      for (int partner = first; partner < first + kLevel; ++partner) {
        load_between(left, p, block, partner);
        add_half<kLevel>(got, left, partner, column);
      }
    }
    __syncthreads();  // all have read this level's halves
#pragma unroll
    for (int n = 0; n < kColumns / kBlock; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int position = block * kBlock + at_.lane / 4 + e % 2 * 8;
        const int channel = column + n * kBlock + e / 2 * 8 + at_.lane % 4 * 2;
        const float* const pair = &got[n][e / 2][e % 2 * 2];
        *reinterpret_cast<std::uint32_t*>(s_.halves[kLevel].bytes[0] +
                                          tile_byte(position, channel)) = pack<T>(pair[0], pair[1]);
      }
    }
  }
  /// Scores between the tokens of a block and those of one earlier or later.
  __device__ __forceinline__ void load_between(std::uint32_t (&left)[4], std::uint32_t p, int block,
                                               int partner) const {
    if (partner < block) {
      load_left<false>(left, p, at_.lane, block * kBlock, partner * kBlock);
    } else {
      load_left<true>(left, p, at_.lane, block * kBlock, partner * kBlock);
    }
  }
  template <int kLevel>
  __device__ __forceinline__ void add_half(float (&got)[2][2][4], const std::uint32_t (&left)[4],
                                           int partner, int column) const {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      std::uint32_t right[4];
      load_right(right, shared_address(&s_.halves[kLevel]), at_.lane, partner * kBlock,
                 column + n * kBlock);
      multiply_block<T>(got[n], left, right);
    }
  }

  // ---- what goes between halves, for the gradients of the gates

  template <bool kLater>
  __device__ __forceinline__ void put_crossings(const float2 (&crossing)[kLevels]) {
#pragma unroll
    for (int level = 1; level < kLevels; ++level) {
      if (is_later(level) == kLater) s_.crossings[level][at_.warp][at_.lane] = crossing[level];
    }
  }
  template <bool kLater>
  __device__ __forceinline__ void add_crossings(float2& outer, float2 (&crossing)[kLevels],
                                                const float2 (&boundary)[kLevels], float2 decay,
                                                float2 row, int i) const {
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (is_later(level) != kLater) continue;
      const std::uint32_t bits = *reinterpret_cast<const std::uint32_t*>(
          s_.halves[level].bytes[0] + tile_byte(at_.position(i), at_.channel()));
      const float2 got = times(times(boundary[level], decay), unpack<T>(bits));
      add(outer, got);
      add(crossing[level], times(row, got));
    }
  }
  /// What other warps and the states have to the gradients of all of this warp's tokens.
  __device__ __forceinline__ float2 common_gradient(int channel) const {
    float2 common = this->gradient_of_others(channel);
#pragma unroll
    for (int level = 1; level < kLevels; ++level) {
      const int first = is_later(level) ? at_.warp + 1 : half_begin(level);
      const int end = is_later(level) ? half_end(level) : at_.warp;
#pragma unroll
      for (int i = 0; i + 1 < 1 << level; ++i) {
        if (first + i < end) add(common, s_.crossings[level][first + i][at_.lane]);
      }
    }
    return common;
  }
};

}  // namespace attune::cuda::gla
