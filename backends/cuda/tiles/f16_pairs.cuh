// Pairs of f16 as operands of arithmetic.
#pragma once

#include <cstdint>

namespace attune::cuda {

/// a b + c of two pairs. (PTX ISA 9.0, 9.7.4.5 fma)
__device__ __forceinline__ std::uint32_t fma_f16_pairs(std::uint32_t a, std::uint32_t b,
                                                       std::uint32_t c) {
  std::uint32_t sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

/// Products of two pairs.
__device__ __forceinline__ std::uint32_t multiply_f16_pairs(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t kMinusZeros = 0x80008000U;
  return fma_f16_pairs(a, b, kMinusZeros);
}

}  // namespace attune::cuda
