// A ring of slots in shared memory between those who fill them and those who use them.
#pragma once

#include "cuda/tiles/tma.cuh"

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
  /// Where it was so many steps ago, fewer than there are slots.
  __device__ __forceinline__ RingPosition before(int steps) const {
    return slot >= steps ? RingPosition{slot - steps, phase}
                         : RingPosition{slot - steps + kSlots, phase ^ 1U};
  }
};

template <int kSlots>
struct Ring {
  SharedBarrier full[kSlots];
  SharedBarrier empty[kSlots];

  /// By one thread, before all others: slots that a copy fills, or so many warps, and so many warps
  /// release.
  __device__ __forceinline__ void init_copied(int releases) { init(1, releases); }
  __device__ __forceinline__ void init_published(int fills, int releases) {
    init(fills * kWarpArrivals, releases);
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
  /// The same of a slot that a copy has filled.
  __device__ __forceinline__ void publish_copied(int slot) { warp_arrive_once(&full[slot]); }
  /// The warp uses the slot no more.
  __device__ __forceinline__ void release(int slot) { warp_arrive(&empty[slot]); }

 private:
  __device__ __forceinline__ void init(int arrivals, int releases) {
    for (int i = 0; i < kSlots; ++i) {
      barrier_init(&full[i], arrivals);
      barrier_init(&empty[i], releases * kWarpArrivals);
    }
  }
};

}  // namespace attune::cuda
