// Where the gradients of what all channels of a token share go.
#pragma once

#include <math_constants.h>

#include "cuda/chunk_mma/backward/chunk_block.cuh"
#include "cuda/tiles/exchange.cuh"

namespace attune::cuda::chunk_mma::backward {

__device__ __forceinline__ bool wants_shared_gates(const BackwardParams& p) {
  return p.dg.data != nullptr || p.gamma_terms != nullptr;
}

/// Whether there is anything for a token's decay to act on: nothing passes a reset, nor is there
/// anything before the first token.
__device__ __forceinline__ bool has_past(const BackwardParams& p, const Chunk& chunk, int row,
                                         float log) {
  return log != -CUDART_INF_F && (p.has_initial || chunk.place.first + row > 0);
}

template <int kParts>
__device__ __forceinline__ float sum_of_parts(const float (&parts)[kParts][kTokens], int token) {
  float sum = 0.0F;
#pragma unroll
  for (const auto& part : parts) sum += part[token];
  return sum;
}

/// Stores the gradients of tokens 2 lane and 2 lane + 1, and their sum over the chunk; by one warp.
__device__ __forceinline__ void store_shared_gates(const BackwardParams& p, const Chunk& chunk,
                                                   const float2& made, bool adds) {
  float sum = 0.0F;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int row = static_cast<int>(threadIdx.x) % kWarpSize * 2 + e;
    if (row >= chunk.place.rows) continue;
    const float log = shared_log_decay(p, chunk.place, chunk.head, row);
    const float gradient = has_past(p, chunk, row, log) ? (e == 0 ? made.x : made.y) : 0.0F;
    sum += gradient;
    if (p.dg.data == nullptr) continue;
    float* const to =
        static_cast<float*>(p.dg.data) +
        row_offset(p.dg, chunk.place.span.batch, chunk.place.token(p, row), chunk.head);
    store_share(to, gradient, adds);
  }
  sum = warp_sum(sum);
  if (p.gamma_terms != nullptr && threadIdx.x % kWarpSize == 0) {
    store_share(p.gamma_terms + chunk.number * p.heads + chunk.head, sum, adds);
  }
}

}  // namespace attune::cuda::chunk_mma::backward
