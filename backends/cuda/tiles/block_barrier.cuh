// A barrier of a block whose warps come to it from different places in the code.
#pragma once

namespace attune::cuda {

/// Of all threads of the block. Its warps may each be at a call of their own: __syncthreads() would
/// have to be the same one for all. (9.7.13.1 barrier; without .aligned, as the PTX ISA asks for
/// where not all threads execute the same instruction)
template <int kId>
__device__ __forceinline__ void block_barrier_sync() {
  asm volatile("barrier.sync %0;" ::"n"(kId) : "memory");
}

}  // namespace attune::cuda
