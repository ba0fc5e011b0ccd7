// Powers of e and of 2, of several vectors at once.
//
// exp2_each() is for decays, whose logs are sums of gates. A sum is rounded, so a result is off by
// about |x| 2^-24 of itself: by about 2^-24 where x < 0, which is what a decay may be off by, but
// more than exp_each() where a small result counts by itself.
#pragma once

#include "vector.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE {

// x[i] = exp(x[i]) to about 1 ulp. exp(-inf) is 0, exp(inf) is inf, a NaN stays a NaN; results
// below 2^-126 may be 0, those above 2^127.5 are inf. Returns log(exact / result) of the last one
// to first order in its argument, which is worth carrying on where that is close to 0.
//
// Several at once and in step: one exp is a chain of fourteen dependent instructions.
template <int kCount>
[[gnu::always_inline]] inline F32 exp_each(F32 (&x)[kCount]) {
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; the bias of the exponent
  // comes with it.
  const F32 kShift = broadcast(0x1.8p23F + 127.0F);
  F32 r[kCount];
  F32 p[kCount];
  F32 power[kCount];
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) {
    // Where n becomes -127 and 128, whose powers below come out as 0 and inf.
    const F32 clamped = at_most(88.8F, at_least(-88.0F, x[i]));
    const F32 shifted = fma(clamped, broadcast(1.44269504F), kShift);
    r[i] = fma(shifted - kShift, broadcast(-0.693147182F), clamped);
    power[i] = as_f32(as_bits(shifted) << 23);
    p[i] = broadcast(1.38145401e-3F);
  }
  // expm1(r) = r + r^2 P(r) on [-log(2) / 2, log(2) / 2]: a minimax fit, off by 3.1e-9 of exp(r) at
  // most.
  constexpr float kCoefficients[] = {8.36874511e-3F, 4.16683908e-2F, 1.66665204e-1F,
                                     4.99999934e-1F};
#pragma GCC unroll 4
  for (const float coefficient : kCoefficients) {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) p[i] = fma(p[i], r[i], broadcast(coefficient));
  }
  F32 error{};
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) {
    const F32 minus_one = fma(p[i] * r[i], r[i], r[i]);
    const F32 mantissa = minus_one + 1.0F;
    x[i] = mantissa * power[i];
    if (i == kCount - 1) error = minus_one - (mantissa - 1.0F);
  }
  return error;
}

inline constexpr float kLog2OfE = 1.44269504F;

// x = whole + part, |part| <= 1/2. A NaN is in both of them; of infinities, `part` is 0.
struct SplitPower {
  F32 whole;
  F32 part;
};

[[gnu::always_inline]] inline SplitPower split_power(F32 x) {
#if defined(__AVX512DQ__) && ATTUNE_SIMD_LANES == 16
  constexpr int kNearestInteger = 0;
  const F32 part = (F32)_mm512_maskz_reduce_ps(__mmask16(-1), (__m512)x, kNearestInteger);
  return {x - part, part};
#else
  // Where 2^whole below comes out as 0 and inf.
  const F32 clamped = at_most(128.0F, at_least(-127.0F, x));
  const F32 kShift = broadcast(0x1.8p23F);
  const F32 whole = (clamped + kShift) - kShift;
  return {whole, clamped - whole};
#endif
}

// x 2^whole, 0 < x < 2; 0 where that is below 2^-126, or may be.
[[gnu::always_inline]] inline F32 times_power(F32 x, F32 whole) {
#if defined(__AVX512F__) && ATTUNE_SIMD_LANES == 16
  return (F32)_mm512_maskz_scalef_ps(__mmask16(-1), (__m512)x, (__m512)whole);
#else
  // The sum leaves the biased exponent in its low bits.
  return x * as_f32(as_bits(whole + (0x1.8p23F + 127.0F)) << 23);
#endif
}

// x[i] = 2^x[i]. 2^-inf is 0, 2^inf is inf, a NaN stays a NaN; results below 2^-126 may be 0, those
// above 2^127.5 inf. Returns log(exact / result) of the last one as exp_each() does.
template <int kCount>
[[gnu::always_inline]] inline F32 exp2_each(F32 (&x)[kCount]) {
  // 2^r = 1 + r P(r): the polynomial of exp_each() in r log(2).
  constexpr float kHighest = 1.53210736e-4F;
  constexpr float kCoefficients[] = {1.33902179e-3F, 9.61852710e-3F, 5.55036216e-2F, 2.40226475e-1F,
                                     6.93147181e-1F};
  SplitPower power[kCount];
  F32 p[kCount];
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) {
    power[i] = split_power(x[i]);
    p[i] = broadcast(kHighest);
  }
#pragma GCC unroll 5
  for (const float coefficient : kCoefficients) {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) p[i] = fma(p[i], power[i].part, broadcast(coefficient));
  }
#pragma GCC unroll 8
  for (int i = 0; i + 1 < kCount; ++i) {
    x[i] = times_power(fma(p[i], power[i].part, broadcast(1.0F)), power[i].whole);
  }
  // Rounded by itself, or the compiler contracts it into one of the sums and not the other.
  const F32 minus_one = in_register(p[kCount - 1] * power[kCount - 1].part);
  const F32 mantissa = minus_one + 1.0F;
  x[kCount - 1] = times_power(mantissa, power[kCount - 1].whole);
  return minus_one - (mantissa - 1.0F);
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE
