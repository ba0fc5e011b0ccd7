// What threads of a part of a block tell one another. Sections are those of the PTX ISA 9.0.
#pragma once

#include "cuda/device/ptx.cuh"

namespace attune::cuda {

/// A barrier of `threads` threads that tells whether any of them says so. (9.7.13.1 barrier.red)
template <int kId>
__device__ __forceinline__ bool named_barrier_any(int threads, bool says) {
  int any;
  asm volatile(
      "{\n"
      ".reg .pred own, some;\n"
      "setp.ne.s32 own, %1, 0;\n"
      "barrier.cta.red.or.pred some, %2, %3, own;\n"
      "selp.s32 %0, 1, 0, some;\n"
      "}"
      : "=r"(any)
      : "r"(static_cast<int>(says)), "n"(kId), "r"(threads)
      : "memory");
  return any != 0;
}

/// (9.7.9.8 ld)
__device__ __forceinline__ std::uint32_t load_shared_4(std::uint32_t from) {
  std::uint32_t loaded;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(loaded) : "r"(from) : "memory");
  return loaded;
}

/// Products of two pairs of bf16. (9.7.4.5 fma)
__device__ __forceinline__ std::uint32_t multiply_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t kMinusZeros = 0x80008000U;
  std::uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(kMinusZeros));
  return product;
}

}  // namespace attune::cuda
