// What threads of a block tell one another: words of shared memory, and sums over a warp. Sections
// are those of the PTX ISA 9.0.
#pragma once

#include "cuda/tiles/ptx.cuh"

namespace attune::cuda {

/// (9.7.9.8 ld)
__device__ __forceinline__ std::uint32_t load_shared_4(std::uint32_t from) {
  std::uint32_t loaded;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(loaded) : "r"(from) : "memory");
  return loaded;
}

/// Words that lie side by side, at a multiple of as many bytes as they have. (9.7.9.8 ld, 9.7.9.11
/// st)
__device__ __forceinline__ void load_shared_words(std::uint32_t (&to)[1], std::uint32_t from) {
  to[0] = load_shared_4(from);
}
__device__ __forceinline__ void load_shared_words(std::uint32_t (&to)[2], std::uint32_t from) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void store_shared_words(std::uint32_t to,
                                                   const std::uint32_t (&words)[1]) {
  store_shared_4(to, words[0]);
}
__device__ __forceinline__ void store_shared_words(std::uint32_t to,
                                                   const std::uint32_t (&words)[2]) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to), "r"(words[0]), "r"(words[1])
               : "memory");
}

/// Every lane gets the sum over all lanes of its warp, always taken in the same order.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int apart = kWarpSize / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(kFullWarp, x, apart);
  return x;
}

/// The sum over this lane and those before it.
__device__ __forceinline__ float warp_inclusive_sum(float x) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const float before = __shfl_up_sync(kFullWarp, x, distance);
    if (lane >= distance) x += before;
  }
  return x;
}

/// The sum over this lane and those after it.
__device__ __forceinline__ float warp_suffix_sum(float x) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const float after = __shfl_down_sync(kFullWarp, x, distance);
    if (lane + distance < kWarpSize) x += after;
  }
  return x;
}

}  // namespace attune::cuda
