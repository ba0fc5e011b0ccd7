// States [K, V] in the accumulators of S^T, moved to and from memory two elements at a time.
//
// A lane has the keys k and k + 1 of rows v and v + 8, and the lane 4 further, where v is even,
// those of v + 1 and v + 9. Rows that are neighbours lie side by side in memory: with half of what
// they have swapped, the lower lane has v and v + 1 and the upper one v + 8 and v + 9. One element
// at a time a warp touches as many lines for half of the bytes.
#pragma once

#include "cuda/chunks/views.cuh"

namespace attune::cuda {

/// Whether pairs of value channels, the first of them even, lie at multiples of their size.
template <class View>
__device__ __forceinline__ bool has_value_pairs(const View& state) {
  return state.v == 1 && state.k % 2 == 0 && state.head % 2 == 0 &&
         reinterpret_cast<std::uintptr_t>(state.data) % sizeof(float2) == 0;
}

__device__ __forceinline__ bool is_upper_lane() { return threadIdx.x % 8 >= 4; }

/// The first row of a lane's pair, counted from its own first one.
__device__ __forceinline__ int pair_row() { return is_upper_lane() ? 7 : 0; }

/// A lane's pair of one key from what it has of rows v and v + 8, and the other way round.
__device__ __forceinline__ float2 swapped_rows(float first, float second) {
  const float other = __shfl_xor_sync(kFullWarp, is_upper_lane() ? first : second, 4);
  return is_upper_lane() ? float2{other, second} : float2{first, other};
}

}  // namespace attune::cuda
