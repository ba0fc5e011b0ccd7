// What a grid's blocks do for sums of planes, a thread so many neighbouring elements of out at a time, or
// those of them that a row has.
#pragma once

#include "cuda/chunks/plane_sums.hpp"
#include "cuda/chunks/views.cuh"
#include "cuda/walks/walk.hpp"

namespace attune::cuda {

/// Elements that lie side by side, loaded or stored at once.
template <class T, int kWidth>
struct alignas(kWidth * sizeof(T)) NeighbouringElements {
  T of[kWidth];
};

template <class T, int kWidth = 1>
__device__ __forceinline__ void sum_planes(const PlaneSumParams& p) {
  const std::int64_t out_heads = p.heads / p.group;
  const std::int64_t plane = p.batches * p.tokens * p.heads * p.row;
  const std::int64_t width = ceil_div(p.columns, kWidth);
  const std::int64_t count = p.batches * p.tokens * out_heads * width;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t end = p.sequences.bounds == nullptr ? p.batches * p.tokens
                                                         : bound_of(p.sequences, p.sequence_count);
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const std::int64_t column = i % width * kWidth;
    const std::int64_t head = i / width % out_heads;
    const std::int64_t row = i / width / out_heads;  // of [B, T]
    const float* const first = p.planes + (row * p.heads + head * p.group) * p.row + column;
    float sums[kWidth] = {};
    for (std::int64_t query_head = 0; row < end && query_head < p.group; ++query_head) {
#pragma unroll 4
      for (std::int64_t at = 0; at < p.plane_count; ++at) {
        const auto share = *reinterpret_cast<const NeighbouringElements<float, kWidth>*>(
            first + query_head * p.row + at * plane);
#pragma unroll
        for (int e = 0; e < kWidth; ++e) sums[e] += share.of[e];
      }
    }
    NeighbouringElements<T, kWidth> sum;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) sum.of[e] = from_float<T>(sums[e]);
    T* const out = static_cast<T*>(p.out.data) +
                   row_offset(p.out, row / p.tokens, row % p.tokens, head) + column;
    if (column + kWidth <= p.columns) {
      *reinterpret_cast<NeighbouringElements<T, kWidth>*>(out) = sum;
    } else if constexpr (kWidth > 1) {
#pragma unroll
      for (int e = 0; e < kWidth - 1; ++e) {
        if (column + e < p.columns) out[e] = sum.of[e];
      }
    }
  }
}

}  // namespace attune::cuda
