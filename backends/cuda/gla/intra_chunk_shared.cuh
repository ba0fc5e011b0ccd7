// The blocks of what stays within a chunk (intra_chunk.cuh), and what they have in shared memory.
#pragma once

#include "cuda/gla/chunk.cuh"

namespace attune::cuda::gla {

/// Warpgroups of a block that takes a chunk alone. Of wide heads it has too much in shared memory
/// for another block beside it, but where it takes 64 channels at a time: then one waits for its
/// loads while others work.
template <int kD>
inline constexpr int kChunkGroups = kD == kLargeTile ? 2 : 1;
/// Of one that has a multiprocessor for itself, as chunks are few.
template <int kD>
inline constexpr int kPartGroups = kD == kSmallTile ? 1 : 2;

/// kD, 64, 128, 256 or 512, is the most channels of either side.
template <int kD, int kGroups>
struct IntraChunkShared {
  static constexpr int kMost = kD;
  static constexpr int kWarpgroups = kGroups;
  static constexpr int kThreads = kGroups * kWarpgroupSize;
  static constexpr int kPart = kGroups * kPanelChannels;  // channels at once
  static constexpr int kFlowTiles = kD > kLargeTile ? kD / kLargeTile : 1;
  /// Of a multiprocessor, at most.
  static constexpr int kBlocks = kD <= kLargeTile       ? 4 - kGroups
                                 : kGroups > 1          ? 1
                                 : kD <= 2 * kLargeTile ? 3
                                                        : 2;
  /// Of the other side: channels of both its tensors that are there at once.
  static constexpr int kUngated = kD <= kLargeTile ? kD : kGroups > 1 ? 2 * kLargeTile : kLargeTile;
  using Channels = TokenTile<kPart>;

  Channels x, y;                  // then scaled; rows permuted
  Channels flows[2][kFlowTiles];  // of x and y, then dx and dy; by row in memory
  TokenTile<kPanelChannels> p;    // [i][j] permuted
  TokenTile<kPanelChannels> a;    // [i][j]
  alignas(16) float state_products[kFlowTiles][kPart];
  SharedBarrier full;
  HeadChunk chunk;  // here, for few registers are left for it
};

}  // namespace attune::cuda::gla
