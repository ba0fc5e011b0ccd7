// Products in TF32.
#pragma once

#include "cuda/tiles/ptx.cuh"

namespace attune::cuda {

/// The tensor cores ignore all but the sign, the exponent and 10 bits of the mantissa.
inline constexpr std::uint32_t kTf32Mask = 0xffffe000U;

__device__ __forceinline__ float truncate_tf32(float x) {
  return __uint_as_float(__float_as_uint(x) & kTf32Mask);
}
/// What is rounded when the tensor cores cut it off: to nearest but for values close to half way,
/// and without a bias. A value that TF32 holds stays itself, and so does NaN, which an addition to
/// its bits would not leave alone.
__device__ __forceinline__ float rounded_when_cut(float x) {
  constexpr float kShare = 0.69F / 2048.0F;
  return fmaf(x, kShare, x);
}

/// d += a b for a 16 x 8, b 8 x 8, d 16 x 8 over a warp. (PTX ISA 9.0, 9.7.14.5.14 mma)
__device__ __forceinline__ void mma_m16n8k8(float (&d)[4], const float (&a)[4], float b0,
                                            float b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}

/// A lane's elements of an operand, in one part, or in a high and a low one.
template <int kParts, int kElements>
struct Operand {
  float high[kElements];
  float low[kParts > 1 ? kElements : 1];

  /// Element i from a float: truncated where there is a low part for what is lost, else rounded.
  __device__ __forceinline__ void set(int i, float x) {
    if constexpr (kParts > 1) {
      high[i] = truncate_tf32(x);
      low[i] = x - high[i];
    } else {
      high[i] = rounded_when_cut(x);
    }
  }
};
template <int kParts>
using LeftOperand = Operand<kParts, 4>;  // 16 x 8
template <int kParts>
using RightOperand = Operand<kParts, 2>;  // 8 x 8

/// Sums of products, each kind by itself: products that follow each other then need not wait for
/// each other's sums.
template <int kParts>
struct Accumulator {
  float sums[kParts > 1 ? 3 : 1][4] = {};

  __device__ __forceinline__ float operator[](int i) const {
    if constexpr (kParts > 1) return (sums[0][i] + sums[1][i]) + sums[2][i];
    return sums[0][i];
  }
};

/// d[i] += a[i] b[i] of kCount products side by side; with one a, or one b, for all of them.
template <int kParts, int kCount, int kLefts, int kRights>
__device__ __forceinline__ void multiply(Accumulator<kParts> (&d)[kCount],
                                         const LeftOperand<kParts> (&a)[kLefts],
                                         const RightOperand<kParts> (&b)[kRights]) {
  static_assert((kLefts == kCount || kLefts == 1) && (kRights == kCount || kRights == 1));
  if constexpr (kParts > 1) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      mma_m16n8k8(d[i].sums[0], a[i % kLefts].low, b[i % kRights].high[0], b[i % kRights].high[1]);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      mma_m16n8k8(d[i].sums[1], a[i % kLefts].high, b[i % kRights].low[0], b[i % kRights].low[1]);
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    mma_m16n8k8(d[i].sums[kParts > 1 ? 2 : 0], a[i % kLefts].high, b[i % kRights].high[0],
                b[i % kRights].high[1]);
  }
}

/// d[i] += a b[i] into one sum each.
template <int kParts, int kCount>
__device__ __forceinline__ void multiply_into(float (&d)[kCount][4], const LeftOperand<kParts>& a,
                                              const RightOperand<kParts> (&b)[kCount]) {
  if constexpr (kParts > 1) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) mma_m16n8k8(d[i], a.low, b[i].high[0], b[i].high[1]);
#pragma unroll
    for (int i = 0; i < kCount; ++i) mma_m16n8k8(d[i], a.high, b[i].low[0], b[i].low[1]);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) mma_m16n8k8(d[i], a.high, b[i].high[0], b[i].high[1]);
}

}  // namespace attune::cuda
