// A ring of slots in shared memory between those who fill them and those who use them.
#pragma once

#include "cuda/device/tma.cuh"

namespace attune::cuda {

/// Where a warp is in a ring. Fillers and users go through the slots in the same order.
template <int kSlots>
struct RingPosition {
  int slot = 0;
  std::uint32_t phase = 0;

  __device__ __forceinline__ void advance() {
    if (++slot < kSlots) return;
    slot = 0;
    phase ^= 1U;
  }
};

/// One arrival for a warp, after all of its lanes got here.
__device__ __forceinline__ void warp_arrive(SharedBarrier* barrier) {
  __syncwarp();
  if (threadIdx.x % kWarpSize == 0) barrier_arrive(barrier);
}

template <int kSlots>
struct Ring {
  SharedBarrier full[kSlots];
  SharedBarrier empty[kSlots];

  /// By one thread, before all others. `fills` and `releases`: arrivals a slot takes.
  __device__ __forceinline__ void init(int fills, int releases) {
    for (int i = 0; i < kSlots; ++i) {
      barrier_init(&full[i], fills);
      barrier_init(&empty[i], releases);
    }
  }
  /// At first all slots are empty: the phase before the first counts as ended.
  __device__ __forceinline__ void wait_empty(const RingPosition<kSlots>& at) {
    barrier_wait(&empty[at.slot], at.phase ^ 1U);
  }
  __device__ __forceinline__ void wait_full(const RingPosition<kSlots>& at) {
    barrier_wait(&full[at.slot], at.phase);
  }
  /// What the warp has written with ordinary stores may be used.
  __device__ __forceinline__ void publish(int slot) { warp_arrive(&full[slot]); }
  /// The warp uses the slot no more.
  __device__ __forceinline__ void release(int slot) { warp_arrive(&empty[slot]); }
};

}  // namespace attune::cuda
