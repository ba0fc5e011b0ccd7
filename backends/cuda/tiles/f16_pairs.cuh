// The range of f16, pairs of it as operands of arithmetic, from bf16 and as bf16.
#pragma once

#include <cstdint>

#include "cuda/tiles/element.cuh"

namespace attune::cuda {

inline constexpr float kMostF16 = 65504.0F;

/// What f16 can hold of x: its largest number for what is larger, but infinities as they are.
__device__ __forceinline__ float within_f16(float x) {
  constexpr float kMostF32 = 3.40282347e38F;
  return fabsf(x) <= kMostF32 ? fminf(fmaxf(x, -kMostF16), kMostF16) : x;
}

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

/// A pair of bf16 as f16: what is beyond its range as its largest number, infinities as NaN.
/// (9.7.9.22 cvt)
__device__ __forceinline__ std::uint32_t narrowed(std::uint32_t pair) {
  std::uint32_t checked;
  asm("fma.rn.bf16x2 %0, %1, %2, %1;" : "=r"(checked) : "r"(pair), "r"(0));
  const float2 both = unpack<__nv_bfloat16>(checked);
  std::uint32_t narrow;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(narrow) : "f"(both.y), "f"(both.x));
  return narrow;
}

/// Pairs of f16 as pairs of bf16.
template <int kCount>
__device__ __forceinline__ void widen(std::uint32_t (&pairs)[kCount]) {
#pragma unroll
  for (std::uint32_t& pair : pairs) {
    const float2 both = unpack<__half>(pair);
    pair = pack<__nv_bfloat16>(both.x, both.y);
  }
}

}  // namespace attune::cuda
