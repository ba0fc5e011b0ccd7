// What the roles of a block of the dk, dv walk (dkdv_walk.cuh) hand each other, and their registers.
#pragma once

#include "cuda/chunk_wgmma/backward/gate_gradients.cuh"
#include "cuda/chunk_wgmma/backward/gradients.cuh"

namespace attune::cuda::chunk_wgmma::backward {

template <class Tile>
struct DkdvShared {
  static constexpr int kStages = 2;
  static constexpr int kPanelOfState = Tile::kValues * kPanelChannels * 2;  // bytes
  TokenTile<Tile::kKeys> q[kStages], k[kStages];
  TokenTile<Tile::kValues> v[kStages], d_o[kStages];
  alignas(1024) unsigned char state[Tile::kKeys / kPanelChannels][kPanelOfState];  // D^T, rounded
  TokenTile<kPanelChannels> scores[2];                                             // P^T
  TokenTile<Tile::kKeys> dk;
  TokenTile<Tile::kValues> dv;
  ChunkGates gates[kGateStages];
  ChunkFlows<Roles<Tile::kValues>::kStateWarps> flows[2];
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
template <class Tile, bool kGateGradients>
struct DkdvRegisters {
  static constexpr int kOthers = 32, kScores = 112, kState = 184;
};
template <bool kGateGradients>
struct DkdvRegisters<ChannelTile<128, 64>, kGateGradients> {
  static constexpr int kOthers = 40, kScores = 216, kState = 240;
};
template <bool kGateGradients>
struct DkdvRegisters<ChannelTile<64, 128>, kGateGradients> {
  static constexpr int kOthers = 32, kScores = 144, kState = 168;
};
template <>
struct DkdvRegisters<ChannelTile<64, 64>, true> {
  static constexpr int kOthers = 40, kScores = 88, kState = 112;
};
template <>
struct DkdvRegisters<ChannelTile<64, 64>, false> {
  static constexpr int kOthers = 32, kScores = 96, kState = 112;
};

#if ATTUNE_SM90A_CODE

// ---- tiles of dk and dv that the warp that writes takes, or the copy engine; by a warpgroup

__device__ __forceinline__ bool leads_warpgroup() { return threadIdx.x % kWarpgroupSize == 0; }
/// `adds`: two parts are added up, by that warp.
__device__ __forceinline__ void wait_for_room(bool adds, Ring<1>& ring, int n) {
  if (leads_warpgroup() && !adds) bulk_wait_read<0>();
  if (leads_warpgroup() && adds) ring.wait_empty(n);
}
__device__ __forceinline__ void hand_over(Ring<1>& ring) {
  if (leads_warpgroup()) barrier_arrive(&ring.full[0]);
}

#endif

}  // namespace attune::cuda::chunk_wgmma::backward
