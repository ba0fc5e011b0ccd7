// Sums of log decays in base 2 whose size takes nothing from their exponentials.
#pragma once

#include "cuda/chunks/segment_walk.cuh"

namespace attune::cuda::chunk_mma {

/// A sum as an integer and a rest, of at most a half where no sums were added to it. Integers are found
/// by adding a float whose ulp is 1, as conversions take eight times as long.
struct Log2Sum {
  int whole = 0;
  float rest = 0.0F;

  __device__ __forceinline__ void add(float log_decay) {
    const float sum = rest + clamped(log_decay * kLog2E);
    const float rounded = sum + kUlpIsOne;
    rest = sum - (rounded - kUlpIsOne);
    whole += __float_as_int(rounded) - __float_as_int(kUlpIsOne);
  }
  __device__ __forceinline__ void add(const Log2Sum& other) {
    whole += other.whole;
    rest += other.rest;
  }
  __device__ __forceinline__ void subtract(const Log2Sum& other) {
    whole -= other.whole;
    rest -= other.rest;
  }
  __device__ __forceinline__ float value() const {
    return (__int_as_float(__float_as_int(kUlpIsOne) + whole) - kUlpIsOne) + rest;
  }
  /// Whether its size is over `most`; a NaN's is.
  __device__ __forceinline__ bool exceeds(float most) const { return !(fabsf(value()) <= most); }
  /// 2 to it, and to minus it; of sums of the range of fp32's exponents.
  __device__ __forceinline__ float exp2() const { return exp2_approx(rest) * power_of_two(whole); }
  __device__ __forceinline__ float exp2_of_minus() const {
    return exp2_approx(-rest) * power_of_two(-whole);
  }
  /// 2 to it, of any sum: 0 where fp32 has no normal number.
  __device__ __forceinline__ float exp2_of_any() const {
    return exp2_approx(rest) * power_of_two(min(max(whole, -kBias), kBias));  // keeps a NaN
  }

 private:
  static constexpr float kUlpIsOne = 12582912.0F;  // 1.5 2^23
  static constexpr int kBias = 127;

  /// Into the range where sums of a chunk's are exact integers; keeps a NaN.
  __device__ __forceinline__ static float clamped(float log2) {
    constexpr float kMost = 65536.0F;
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(log2) : "f"(kReset));
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(log2) : "f"(kMost));
    return log2;
  }
  /// 0 of -127.
  __device__ __forceinline__ static float power_of_two(int n) {
    constexpr int kMantissaBits = 23;
    return __int_as_float((n + kBias) << kMantissaBits);
  }
};

}  // namespace attune::cuda::chunk_mma
