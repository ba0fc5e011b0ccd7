// What the two walks have in common: the roles of warpgroups, rings of buffers, and the warps that
// load and scan.
#pragma once

#include "cuda/chunk_wgmma/backward/gates.cuh"
#include "cuda/chunk_wgmma/backward/transfer.cuh"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda::chunk_backward {

/// Warpgroups: one per 64 rows of the state, then one that makes the scores, then single warps.
template <int kD>
struct Roles {
  static constexpr int kStateGroups = kD / kPanelChannels;
  static constexpr int kScores = kStateGroups;
  static constexpr int kWarps = kStateGroups + 1;
  static constexpr int kThreads = (kStateGroups + 2) * kWarpgroupSize;
  static constexpr int kStateWarps = kStateGroups * kWarpgroupSize / kWarpSize;
  static constexpr int kScoreWarps = kWarpgroupSize / kWarpSize;
  // Of the last warpgroup.
  static constexpr int kLoadWarp = 0;
  static constexpr int kGateWarp = 1;
  static constexpr int kGradientWarp = 2;
};

/// Buffers that are filled and emptied in turn.
template <int kDepthOfRing>
struct Ring {
  SharedBarrier full[kDepthOfRing];
  SharedBarrier empty[kDepthOfRing];

  /// Buffers that so many copies fill, or so many warps, and so many warps empty.
  __device__ void init(int copies, int emptiers) {
    for (int i = 0; i < kDepthOfRing; ++i) {
      barrier_init(&full[i], copies);
      barrier_init(&empty[i], emptiers * kWarpArrivals);
    }
  }
  __device__ void init_filled_by_warps(int fillers, int emptiers) {
    init(fillers * kWarpArrivals, emptiers);
  }
  __device__ static int slot(int n) { return n % kDepthOfRing; }
  __device__ void wait_full(int n) { barrier_wait(&full[slot(n)], n / kDepthOfRing & 1); }
  __device__ void wait_empty(int n) {
    if (n >= kDepthOfRing) barrier_wait(&empty[slot(n)], (n / kDepthOfRing - 1) & 1);
  }
  __device__ void warp_arrive_full(int n) { warp_arrive(&full[slot(n)]); }
  __device__ void warp_arrive_empty(int n) { warp_arrive(&empty[slot(n)]); }
};

inline constexpr int kGateSlots = 4;

/// The warp that scans gates, ahead of those that need them. Returns the decay over the whole walk.
template <class T>
__device__ __forceinline__ float gate_warp(const ChunkBackwardParams& p, const Walk& walk,
                                           ChunkGates (&gates)[kGateSlots],
                                           Ring<kGateSlots>& ring) {
  const float constant = constant_decay(p.gamma, walk.sequence, walk.head) * kLog2E;
  float over_walk = 1.0F;
  // Two chunks ahead: a load takes about as long as a chunk.
  RawGates next = load_gates(p, walk, 0);
  RawGates after = load_gates(p, walk, 1);
  for (int n = 0; n < walk.count; ++n) {
    const RawGates current = next;
    next = after;
    after = load_gates(p, walk, n + 2);
    ring.wait_empty(n);
    over_walk *= write_gates(gates[ring.slot(n)], log2_decays<T>(p, walk, current, constant, n),
                             p.scale, walk.reverse);
    ring.warp_arrive_full(n);
  }
  return over_walk;
}

/// The weights of one row's writes, for reads in columns `column` and `column + 1`.
struct RowWeights {
  float cumulative;
  int first, last;
  __device__ RowWeights(const ChunkGates& gates, int row)
      : cumulative(gates.cumulative[row]),
        first(gates.reach[row].first),
        last(gates.reach[row].last) {}
  /// Selected, not multiplied: outside of its reach a weight may be infinite.
  __device__ float apply(float x, float weight, int column) const {
    return first <= column && column <= last ? x * weight : 0.0F;
  }
};

}  // namespace attune::cuda::chunk_backward
