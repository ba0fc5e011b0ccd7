// What a grid's blocks do for sums of planes, a thread an element of out at a time.
#pragma once

#include "cuda/chunks/plane_sums.hpp"
#include "cuda/chunks/views.cuh"

namespace attune::cuda {

template <class T>
__device__ __forceinline__ void sum_planes(const PlaneSumParams& p) {
  const std::int64_t out_heads = p.heads / p.group;
  const std::int64_t plane = p.batches * p.tokens * p.heads * p.columns;
  const std::int64_t count = p.batches * p.tokens * out_heads * p.columns;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t end = p.sequences.bounds == nullptr ? p.batches * p.tokens
                                                         : bound_of(p.sequences, p.sequence_count);
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const std::int64_t column = i % p.columns;
    const std::int64_t head = i / p.columns % out_heads;
    const std::int64_t row = i / p.columns / out_heads;  // of [B, T]
    const float* const first = p.planes + (row * p.heads + head * p.group) * p.columns + column;
    float sum = 0.0F;
    for (std::int64_t query_head = 0; row < end && query_head < p.group; ++query_head) {
      for (std::int64_t at = 0; at < p.plane_count; ++at) {
        sum += first[query_head * p.columns + at * plane];
      }
    }
    T* const out = static_cast<T*>(p.out.data) +
                   row_offset(p.out, row / p.tokens, row % p.tokens, head) + column;
    *out = from_float<T>(sum);
  }
}

}  // namespace attune::cuda
