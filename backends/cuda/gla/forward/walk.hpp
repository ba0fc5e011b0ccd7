// The forward pass with gates of key channels in two launches: operands of all chunks
// (operands.cuh), and the walk over them (walk.cuh).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/gla/forward/chunk_gla_config.hpp"
#include "cuda/gla/params.hpp"
#include "cuda/wgmma_walk/walk.hpp"

namespace attune::cuda::gla::forward {

/// What the walk takes besides v, o and the states: the operands, by [heads, slots] (chunk.hpp), in
/// panels as shared memory has them.
struct WalkOperands {
  const std::byte* tiles = nullptr;   // [tile_k / 64, 2]: of queries and of keys in turn
  const std::byte* scores = nullptr;  // a panel
  const float* decays = nullptr;      // [tile_k]: of the chunk
  std::int64_t slots = 0;
};

// T is __nv_bfloat16.

template <class T>
void launch_operands(const GlaParams& params, cudaStream_t stream);
template <class T>
void launch_walk(const ChunkGlaConfig& config, const chunk_wgmma::WalkParams& params,
                 const WalkOperands& operands, cudaStream_t stream);

}  // namespace attune::cuda::gla::forward
