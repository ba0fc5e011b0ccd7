// Sums of log decays in base 2 whose size takes nothing from their exponentials.
#pragma once

#include "cuda/chunks/segment_walk.cuh"

namespace attune::cuda::chunk_mma {

/// A sum as an integer and a rest, of at most a half where no sums were added to it.
struct Log2Sum {
  float whole = 0.0F;
  float rest = 0.0F;

  __device__ __forceinline__ void add(float log_decay) {
    const float log2 = log_decay * kLog2E;
    const float sum = rest + (log2 < kReset ? kReset : log2);  // keeps a NaN
    const float step = rintf(sum);
    rest = sum - step;
    whole += step;
  }
  __device__ __forceinline__ void add(const Log2Sum& other, float sign) {
    whole = fmaf(sign, other.whole, whole);
    rest = fmaf(sign, other.rest, rest);
  }
  __device__ __forceinline__ float value() const { return whole + rest; }
  /// Whether its size is over `most`; a NaN's is.
  __device__ __forceinline__ bool exceeds(float most) const {
    return !(fabsf(whole + rest) <= most);
  }
  /// 2 to it, and to minus it; of sums of the range of fp32's exponents.
  __device__ __forceinline__ float exp2() const { return exp2_approx(rest) * power_of_two(whole); }
  __device__ __forceinline__ float exp2_of_minus() const {
    return exp2_approx(-rest) * power_of_two(-whole);
  }
  /// 2 to it, of any sum: 0 where fp32 has no normal number.
  __device__ __forceinline__ float exp2_of_any() const {
    constexpr float kLeast = -126.0F;
    constexpr float kMost = 127.0F;
    const float factor = exp2_approx(rest) * power_of_two(fminf(fmaxf(whole, kLeast), kMost));
    return whole < kLeast ? 0.0F : factor;  // keeps a NaN
  }

 private:
  __device__ __forceinline__ static float power_of_two(float n) {
    constexpr int kBias = 127;
    constexpr int kMantissaBits = 23;
    return __int_as_float((static_cast<int>(n) + kBias) << kMantissaBits);
  }
};

}  // namespace attune::cuda::chunk_mma
