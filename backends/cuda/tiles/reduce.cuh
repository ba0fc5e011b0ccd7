// Sums over the threads of a warp, always in the same order.
#pragma once

#include "cuda/tiles/ptx.cuh"

namespace attune::cuda {

/// Every lane gets the sum over all of them.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int apart = kWarpSize / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(kFullWarp, x, apart);
  return x;
}

}  // namespace attune::cuda
