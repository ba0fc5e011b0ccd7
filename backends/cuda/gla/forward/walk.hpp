// The forward pass with gates of key channels, in which the blocks that walk a head's value channels
// make its operands for one another (walk.cuh).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <attune/core/axis_values.hpp>

#include "cuda/gla/forward/chunk_gla_config.hpp"
#include "cuda/gla/params.hpp"
#include "cuda/wgmma_walk/walk.hpp"

namespace attune::cuda::gla::forward {

/// Key channels that are taken.
inline constexpr int kMostKeys = largest_value(&ChunkGlaConfig::tile_k);
/// Value channels of a block.
inline constexpr int kValueTile = 64;

/// How far the blocks of a launch are, in its workspace.
struct WalkProgress {
  int* taken = nullptr;  // [N, heads]: chunks whose operands a block makes, from the first on
  unsigned* is_made = nullptr;  // [heads, slots]: whether a chunk's are there
};

/// T is __nv_bfloat16. Of `operands`, x_from_start has the tiles of [tile_k / 64, 2]: of queries and of
/// keys in turn; total_decay is negative where a panel's are strong (operands.cuh).
template <class T>
void launch_walk(const ChunkGlaConfig& config, const chunk_wgmma::WalkParams& params,
                 const GlaParams& operands, const WalkProgress& progress, cudaStream_t stream);

}  // namespace attune::cuda::gla::forward
