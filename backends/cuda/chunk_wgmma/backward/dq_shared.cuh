// What the roles of a block of the dq walk (dq_walk.cuh) hand each other, and their registers.
#pragma once

#include "cuda/chunk_wgmma/backward/gate_gradients.cuh"
#include "cuda/chunk_wgmma/backward/gradients.cuh"

namespace attune::cuda::chunk_wgmma::backward {

template <class Tile, bool kGateGradients>
struct DqShared {
  static constexpr int kStages = 3;
  static constexpr int kQueryStages = kGateGradients && !Tile::kIsSmall ? 2 : 1;
  TokenTile<Tile::kValues> d_o[kStages], v[kStages];
  TokenTile<Tile::kKeys> k[kStages];
  TokenTile<Tile::kKeys> q[kQueryStages];
  TokenTile<kPanelChannels> scores[2];
  TokenTile<Tile::kKeys> dq;
  alignas(16) float inflow[2][Roles<Tile::kKeys>::kStateWarps][kChunkTokens];  // of warps
  ChunkGates gates[kGateStages];
  Ring<kStages> stage_ring;
  Ring<kQueryStages> query_ring;
  Ring<kGateStages> gate_ring;
  Ring<2> score_ring;
  Ring<2> inflow_ring;
  SharedBarrier private_full;
  SharedBarrier private_query_full;
  ChunkWalk walk;
  GradientPlace dq_place;
};

/// Registers a thread of each role.
template <class Tile>
struct DqRegisters {
  static constexpr int kOthers = 32, kScores = 96, kState = 192;
};
template <>
struct DqRegisters<ChannelTile<64, 64>> {
  static constexpr int kOthers = 40, kScores = 72, kState = 128;
};

}  // namespace attune::cuda::chunk_wgmma::backward
