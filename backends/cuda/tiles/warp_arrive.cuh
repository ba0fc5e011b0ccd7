// How a warp tells a barrier in shared memory that all of its lanes got somewhere.
#pragma once

#include "cuda/tiles/tma.cuh"

/// Defined as 1 by the CMake option of this name: every lane arrives for itself.
/// compute-sanitizer's racecheck does not follow what __syncwarp() orders, and so takes what other
/// lanes wrote before a single arrival for a race. It costs up to a tenth of a kernel's time.
#ifndef ATTUNE_RACECHECK
#define ATTUNE_RACECHECK 0
#endif

namespace attune::cuda {

/// Arrivals of one warp_arrive(): a barrier waits for this many times its warps.
inline constexpr int kWarpArrivals = ATTUNE_RACECHECK ? kWarpSize : 1;

/// One arrival for a warp, after all of its lanes got here.
__device__ __forceinline__ void warp_arrive_once(SharedBarrier* barrier) {
  __syncwarp();
  if (threadIdx.x % kWarpSize == 0) barrier_arrive(barrier);
}

/// kWarpArrivals of them.
__device__ __forceinline__ void warp_arrive(SharedBarrier* barrier) {
  if constexpr (kWarpArrivals == 1) {
    warp_arrive_once(barrier);
  } else {
    barrier_arrive(barrier);
  }
}

}  // namespace attune::cuda
