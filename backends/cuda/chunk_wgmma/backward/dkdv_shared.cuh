// What the roles of a block of the dk, dv walk (dkdv_walk.cuh) hand each other, and their registers.
#pragma once

#include "cuda/chunk_wgmma/backward/gate_gradients.cuh"
#include "cuda/chunk_wgmma/backward/gradients.cuh"

namespace attune::cuda::chunk_wgmma::backward {

template <int kD>
struct DkdvShared {
  static constexpr int kStages = 2;
  TokenTile<kD> q[kStages], k[kStages], v[kStages], d_o[kStages];
  alignas(1024) unsigned char state[kD / kPanelChannels][kD * kPanelChannels * 2];  // D^T, rounded
  TokenTile<kPanelChannels> scores[2];                                              // P^T
  TokenTile<kD> dk, dv;
  ChunkGates gates[kGateStages];
  ChunkFlows<Roles<kD>::kStateWarps> flows[2];
  Ring<kStages> stage_ring;
  Ring<kGateStages> gate_ring;
  Ring<2> score_ring;
  Ring<2> flow_ring;
  Ring<1> state_ring;
  Ring<1> dk_ring, dv_ring;
  SharedBarrier private_full;
  ChunkWalk walk;
  GradientPlace dk_place, dv_place;
};

/// Registers a thread of each role. With fewer for the scores, or the states, they spill, or the compiler
/// has products wait for each other.
template <int kD, bool kGateGradients>
struct DkdvRegisters {
  static constexpr int kOthers = 32, kScores = 112, kState = 184;
};
template <>
struct DkdvRegisters<64, true> {
  static constexpr int kOthers = 40, kScores = 88, kState = 112;
};
template <>
struct DkdvRegisters<64, false> {
  static constexpr int kOthers = 32, kScores = 96, kState = 112;
};

}  // namespace attune::cuda::chunk_wgmma::backward
