// Decay factors that stay right over many tokens.
#pragma once

#include "cuda/tiles/ptx.cuh"

namespace attune::cuda {

/// exp(x) as a sum of two floats, to about 1e-9 and much closer where x is near 0. A factor near 1
/// that is rounded to fp32 is off by up to 3e-8, always to the same side while x stays the same:
/// over thousands of tokens of weak decay that alone breaks 2e-5.
struct DecayFactor {
  float high = 1.0F;
  float low = 0.0F;
};

/// 2^n for n in [-252, 254], as a product of two: neither of them overflows or vanishes.
__device__ __forceinline__ float2 power_of_two_halves(int n) {
  constexpr int kBias = 127;
  constexpr int kMantissaBits = 23;
  const int half = n / 2;
  return {__int_as_float((half + kBias) << kMantissaBits),
          __int_as_float((n - half + kBias) << kMantissaBits)};
}

/// The factor of a log decay: exactly 0 for -inf, infinite where exp() is, NaN for NaN.
__device__ __forceinline__ DecayFactor decay_factor(float x) {
  constexpr float kZeroBelow = -105.0F;  // exp(x) rounds to 0
  constexpr float kInfiniteAbove = 90.0F;
  x = x < kZeroBelow ? kZeroBelow : x;  // not fmaxf(), which drops NaN
  x = x > kInfiniteAbove ? kInfiniteAbove : x;

  // x = n ln 2 + r + tail with |r| <= ln 2 / 2, after Cody and Waite: n * kLn2High is exact.
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  const float n = rintf(x * kLog2E);
  const float exact = fmaf(n, -kLn2High, x);
  const float r = fmaf(n, -kLn2Low, exact);
  const float tail = fmaf(n, -kLn2Low, exact - r);

  // exp(r) - 1 = r + rest, by Taylor's series: the first term left out is r^8 / 8! < 6e-9.
  float series = 1.0F / 5040.0F;
  series = fmaf(series, r, 1.0F / 720.0F);
  series = fmaf(series, r, 1.0F / 120.0F);
  series = fmaf(series, r, 1.0F / 24.0F);
  series = fmaf(series, r, 1.0F / 6.0F);
  series = fmaf(series, r, 0.5F);
  const float rest = fmaf(r * r, series, tail);

  // 1 + r + rest without losing what the first sum rounds away.
  const float sum = 1.0F + r;
  const float lost = (r - (sum - 1.0F)) + rest;
  const float high = sum + lost;
  const float low = lost - (high - sum);
  const float2 power = power_of_two_halves(static_cast<int>(n));
  return {high * power.x * power.y, low * power.x * power.y};
}

/// A state behind tokens that decay it by `factor` and add `sum`.
__device__ __forceinline__ float decayed_sum(const DecayFactor& factor, float state, float sum) {
  return fmaf(state, factor.high, fmaf(state, factor.low, sum));
}

}  // namespace attune::cuda
