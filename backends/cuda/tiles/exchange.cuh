// What threads of a part of a block tell one another. Sections are those of the PTX ISA 9.0.
#pragma once

#include "cuda/tiles/ptx.cuh"

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

/// Products of two pairs of bf16. (9.7.4.5 fma)
__device__ __forceinline__ std::uint32_t multiply_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t kMinusZeros = 0x80008000U;
  std::uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(kMinusZeros));
  return product;
}

}  // namespace attune::cuda
