// Operands of mma in a warp's registers, and their products. f32 and f16 are pairs of bf16
// (split_pairs.cuh): f16 with decays leaves its range, and as a pair it loses nothing.
#pragma once

#include <type_traits>

#include "cuda/tiles/split_pairs.cuh"

namespace attune::cuda::warp_mma {

template <class T>
inline constexpr bool kIsSplit = !std::is_same_v<T, __nv_bfloat16>;

/// A block of 16 x 16: words 0 and 2 are of row g and columns 2 t and 2 t + 8, 1 and 3 of row g + 8.
struct PlainBlock {
  std::uint32_t high[4];
};
template <bool kSplit>
struct Operand : std::conditional_t<kSplit, SplitBlock, PlainBlock> {
  __device__ __forceinline__ void set(int word, float x, float y) {
    if constexpr (kSplit) {
      SplitBlock::set(word, split(x, y));
    } else {
      this->high[word] = pack<SplitPart>(x, y);
    }
  }

  /// With rows for columns. As the right operand of multiply() a block's rows are what is summed over,
  /// and its words come in the order of the transposed block's as the left one, transposed.
  __device__ __forceinline__ Operand transposed_words() const {
    Operand to;
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      to.high[word] = transpose_matrix(this->high[word]);
      if constexpr (kSplit) to.low[word] = transpose_matrix(this->low[word]);
    }
    return to;
  }
  /// From a block's words to those of its transposed one where both have been transposed, or neither.
  __device__ __forceinline__ Operand swapped() const {
    Operand to = *this;
    to.high[1] = this->high[2];
    to.high[2] = this->high[1];
    if constexpr (kSplit) {
      to.low[1] = this->low[2];
      to.low[2] = this->low[1];
    }
    return to;
  }
};

/// A sum of 16 x 16: columns 2 t of each half, rows g and g + 8.
using Sums = float[2][4];

/// d += a b; of b words 0 and 1 are of columns g, 2 and 3 of columns g + 8.
template <bool kSplit>
__device__ __forceinline__ void multiply(float (*d)[4], const Operand<kSplit>& a,
                                         const Operand<kSplit>& b) {
  if constexpr (kSplit) {
    const SplitBlock right[] = {b};
    mma_split(d, a, right);
  } else {
    mma_m16n8k16<SplitPart>(d[0], a.high, b.high[0], b.high[1]);
    mma_m16n8k16<SplitPart>(d[1], a.high, b.high[2], b.high[3]);
  }
}

/// A sum as the left operand of another product.
template <bool kSplit>
__device__ __forceinline__ Operand<kSplit> operand_of(const Sums& sums) {
  Operand<kSplit> operand;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    operand.set(2 * half, sums[half][0], sums[half][1]);
    operand.set(2 * half + 1, sums[half][2], sums[half][3]);
  }
  return operand;
}

}  // namespace attune::cuda::warp_mma
