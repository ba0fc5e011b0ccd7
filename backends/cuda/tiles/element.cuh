// Element types in registers: one at a time as fp32, and in pairs as the tensor cores take them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace attune::cuda {

/// The PTX name of an element type, for instructions that carry it ("C" constraint of asm).
template <class T>
struct PtxName;
template <>
struct PtxName<__nv_bfloat16> {
  static constexpr char kValue[] = "bf16";
};
template <>
struct PtxName<__half> {
  static constexpr char kValue[] = "f16";
};

template <class T>
__device__ __forceinline__ float to_float(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __half2float(x);
  } else {
    static_assert(std::is_same_v<T, __nv_bfloat16>);
    return __bfloat162float(x);
  }
}

/// To nearest, ties to even.
template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    static_assert(std::is_same_v<T, __nv_bfloat16>);
    return __float2bfloat16_rn(x);
  }
}

/// Two 16-bit elements in one register, `low` at the lower address; one instruction.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.%3x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low), "C"(PtxName<T>::kValue));
  return pair;
}

template <class T>
__device__ __forceinline__ float2 unpack(std::uint32_t pair) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    // bf16 is the upper half of an fp32.
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000U)};
  } else {
    static_assert(std::is_same_v<T, __half>);
    __half2_raw halves;
    halves.x = static_cast<unsigned short>(pair);
    halves.y = static_cast<unsigned short>(pair >> 16);
    return __half22float2(halves);
  }
}

/// Products of two pairs of bf16. (PTX ISA 9.0, 9.7.4.5 fma)
__device__ __forceinline__ std::uint32_t multiply_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t kMinusZeros = 0x80008000U;
  std::uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(kMinusZeros));
  return product;
}

}  // namespace attune::cuda
