// How one block tells another that what it has stored is there, and adds to it: for kernels of folders that
// do not include each other (cuda.chunk_gla's operands, cuda.chunk_wgmma.backward's gradients).
#pragma once

#include "cuda/tiles/tma.cuh"

namespace attune::cuda {

/// Says that what this thread knows to be in memory may be accessed by the copy engine. (9.7.9.12 st)
__device__ __forceinline__ void publish(unsigned* flag) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(1U) : "memory");
}
/// Waits for that. The copy engine's accesses do not pass by what an acquire would clear, the L1 cache.
__device__ __forceinline__ void wait_for_publication(const unsigned* flag) {
  constexpr unsigned kNanoseconds = 20;
  for (;;) {
    unsigned is_set;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(is_set) : "l"(flag) : "memory");
    if (is_set != 0) break;
    __nanosleep(kNanoseconds);
  }
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/// Waits until so many threads have added to a counter, each behind a fence, for any accesses.
__device__ __forceinline__ void wait_for_publications(const unsigned* counter, unsigned count) {
  constexpr unsigned kNanoseconds = 20;
  for (;;) {
    unsigned published;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(published) : "l"(counter) : "memory");
    if (published >= count) break;
    __nanosleep(kNanoseconds);
  }
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/// Adds a box to what the tensor has, in its own type. (9.7.9.25.5 cp.reduce.async.bulk.tensor)
__device__ __forceinline__ void tensor_add(const CUtensorMap* map, std::uint32_t from, int x, int y,
                                           int z, int w) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4, %5}], "
      "[%1];" ::"l"(map),
      "r"(from), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

}  // namespace attune::cuda
