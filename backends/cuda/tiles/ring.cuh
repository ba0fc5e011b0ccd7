// A ring of stages in shared memory between the warps that fill them and the warps that use them.
//
// Both go through the stages in the same order. They say where they are by a position that they
// carry along, or by the number of the chunk: the first takes two registers, the second a division.
#pragma once

#include "cuda/tiles/tma.cuh"

namespace attune::cuda {

/// Where a warp is in a ring.
template <int kStages>
struct RingPosition {
  int stage = 0;
  std::uint32_t phase = 0;

  __device__ __forceinline__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    phase ^= 1U;
  }
  /// Where it was so many steps ago, fewer than there are stages.
  __device__ __forceinline__ RingPosition before(int steps) const {
    return stage >= steps ? RingPosition{stage - steps, phase}
                          : RingPosition{stage - steps + kStages, phase ^ 1U};
  }
};

template <int kStages>
struct Ring {
  SharedBarrier full[kStages];
  SharedBarrier empty[kStages];

  /// By one thread, before all others: stages that so many copies fill, or so many warps, and that
  /// so many warps release.
  __device__ __forceinline__ void init_copied(int copies, int releases) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&full[i], copies);
      barrier_init(&empty[i], releases * kWarpArrivals);
    }
  }
  __device__ __forceinline__ void init_published(int fills, int releases) {
    init_copied(fills * kWarpArrivals, releases);
  }

  // ---- by position. At first all stages are empty: the phase before the first counts as ended.

  __device__ __forceinline__ void wait_empty(const RingPosition<kStages>& at) {
    barrier_wait(&empty[at.stage], at.phase ^ 1U);
  }
  __device__ __forceinline__ void wait_full(const RingPosition<kStages>& at) {
    barrier_wait(&full[at.stage], at.phase);
  }
  /// What the warp has written with ordinary stores may be used.
  __device__ __forceinline__ void publish(int stage) { warp_arrive(&full[stage]); }
  /// The same of a stage that a copy has filled.
  __device__ __forceinline__ void publish_copied(int stage) { warp_arrive_once(&full[stage]); }
  /// The warp uses the stage no more.
  __device__ __forceinline__ void release(int stage) { warp_arrive(&empty[stage]); }

  // ---- by number of the chunk

  __device__ static int stage(int chunk) { return chunk % kStages; }
  __device__ void wait_empty(int chunk) {
    if (chunk >= kStages) barrier_wait(&empty[stage(chunk)], (chunk / kStages - 1) & 1);
  }
  __device__ void wait_full(int chunk) { barrier_wait(&full[stage(chunk)], chunk / kStages & 1); }
  __device__ void publish_chunk(int chunk) { publish(stage(chunk)); }
  __device__ void release_chunk(int chunk) { release(stage(chunk)); }
};

}  // namespace attune::cuda
