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
  /// [segments, N, heads]: chunks whose operands a block makes, from the first on.
  int* taken = nullptr;
  unsigned* is_made = nullptr;  // [heads, slots]: whether a chunk's are there
};

/// The tile of walks in segments: narrow ones gain nothing by them.
inline constexpr int kTileOfSegments = kMostKeys;

/// What segments of sequences add to the state, and then what they start from: as states lie in memory, so
/// that a walk reads them as it reads initial ones.
struct SegmentSums {
  float* starts = nullptr;  // [N, segments, heads, K, row]
  float* decays = nullptr;  // [N, segments, heads, kTileOfSegments]: the product of a segment's
  int row = 0;              // V, and what rounds it up to kValueTile

  /// Of all segments, one sequence's behind another's.
  template <class View = StateView>
  constexpr View starts_view(const chunk_wgmma::WalkExtents& extents) const {
    View view;
    view.data = starts;
    view.v = 1;
    view.k = row;
    view.head = extents.K * view.k;
    view.sequence = extents.heads * view.head;
    return view;
  }
};

/// Of `operands`, operand_panels has the tiles of [tile_k / 64, 2]: of queries and of keys in turn;
/// total_decay is negative where a panel's are strong (operands.cuh).
template <class T>
void launch_walk(const ChunkGlaConfig& config, const chunk_wgmma::WalkParams& params,
                 const GlaParams& operands, const WalkProgress& progress, const SegmentSums& sums,
                 cudaStream_t stream);

}  // namespace attune::cuda::gla::forward
