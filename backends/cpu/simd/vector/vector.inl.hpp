// Fixed-length float vectors for kernels that are compiled once per instruction set.
//
// The includer defines ATTUNE_SIMD_NAMESPACE (baseline, avx2, avx512) and ATTUNE_SIMD_LANES (4, 8,
// 16) before the include and is compiled with the matching flags. Everything lives in a namespace
// of that name: two translation units may then hold the same function in different instructions and
// the linker never merges them. For the same reason nothing here, and nothing that includes this,
// calls a std:: function.
//
// Compiler vector extensions rather than a library: the kernels need about fifteen operations, GCC
// and Clang map `a * b + c`, conversions and shuffles to the right instructions on x86 and ARM
// alike, and the two functions a library would bring (exp that keeps NaN and reports its rounding
// error, bf16 rounding that keeps denormals) are not in Highway 1.0.3.
#pragma once

#include <cstdint>
#include <utility>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "cpu/simd/kernel/params.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE {

inline constexpr int kLanes = ATTUNE_SIMD_LANES;

typedef float F32 __attribute__((vector_size(kLanes * 4)));
typedef std::uint32_t U32 __attribute__((vector_size(kLanes * 4)));
typedef std::uint16_t U16 __attribute__((vector_size(kLanes * 2)));

// The casts of a vector's bits; a C-style cast is how the extension spells them.
[[gnu::always_inline]] inline F32 as_f32(U32 bits) { return (F32)bits; }
[[gnu::always_inline]] inline U32 as_bits(F32 x) { return (U32)x; }

[[gnu::always_inline]] inline F32 broadcast(float x) { return x - F32{}; }

// Keeps `x` in a register. Without it GCC folds a broadcast into every instruction that uses it,
// and the loop is bound by loads instead of arithmetic.
[[gnu::always_inline]] inline F32 in_register(F32 x) {
#if defined(__AVX512F__)
  asm("" : "+v"(x));
#elif defined(__x86_64__)
  asm("" : "+x"(x));
#elif defined(__aarch64__)
  asm("" : "+w"(x));
#endif
  return x;
}

// One instruction where the target has it; the build allows contraction (-ffp-contract=fast).
[[gnu::always_inline]] inline F32 fma(F32 a, F32 b, F32 c) { return a * b + c; }

[[gnu::always_inline]] inline F32 load(const float* source) {
  F32 x;
  __builtin_memcpy(&x, source, sizeof(x));
  return x;
}

[[gnu::always_inline]] inline void store(float* target, F32 x) {
  __builtin_memcpy(target, &x, sizeof(x));
}

// ---- storage types ----

// One instruction each, where g++ 12 makes five of a conversion.
[[gnu::always_inline]] inline U32 widen_lanes(U16 half) {
#if defined(__AVX512F__) && ATTUNE_SIMD_LANES == 16
  return (U32)_mm512_maskz_cvtepu16_epi32(__mmask16(-1), (__m256i)half);
#elif defined(__AVX2__) && ATTUNE_SIMD_LANES == 8
  return (U32)_mm256_cvtepu16_epi32((__m128i)half);
#else
  return __builtin_convertvector(half, U32);
#endif
}

// The lower half of each lane.
[[gnu::always_inline]] inline U16 narrow_lanes(U32 x) {
#if defined(__AVX512F__) && ATTUNE_SIMD_LANES == 16
  return (U16)_mm512_maskz_cvtepi32_epi16(__mmask16(-1), (__m512i)x);
#else
  return __builtin_convertvector(x, U16);
#endif
}

[[gnu::always_inline]] inline F32 widen_bf16(U16 half) { return as_f32(widen_lanes(half) << 16); }

// Rounds to nearest even; a NaN stays a NaN. Not vcvtneps2bf16, which flushes denormals.
[[gnu::always_inline]] inline U16 narrow_bf16(F32 x) {
  const U32 bits = as_bits(x);
  const U32 rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  const U32 quiet_nan = bits | 0x400000U;
  return narrow_lanes((x == x ? rounded : quiet_nan) >> 16);
}

[[gnu::always_inline]] inline F32 widen_f16(U16 half) {
#if defined(__F16C__) && ATTUNE_SIMD_LANES == 16
  // The zero-masked forms: g++ 12 warns about the plain ones' own undefined operand.
  return (F32)_mm512_maskz_cvtph_ps(__mmask16(-1), (__m256i)half);
#elif defined(__F16C__) && ATTUNE_SIMD_LANES == 8
  return (F32)_mm256_cvtph_ps((__m128i)half);
#else
  const U32 wide = __builtin_convertvector(half, U32);
  const U32 magnitude = (wide & 0x7fffU) << 13;
  const U32 kExponent = U32{} + (0x1fU << 23);
  const U32 normal = magnitude + (112U << 23);
  // A subnormal half is a multiple of 2^-24: give it an exponent, then take the implied one off
  // again.
  const U32 subnormal = as_bits(as_f32(magnitude + (113U << 23)) - 0x1p-14F);
  const U32 finite = (magnitude < (1U << 23)) ? subnormal : normal;
  const U32 result = (magnitude >= kExponent) ? (magnitude | 0x7f800000U) : finite;
  return as_f32(result | ((wide & 0x8000U) << 16));
#endif
}

[[gnu::always_inline]] inline U16 narrow_f16(F32 x) {
#if defined(__F16C__) && ATTUNE_SIMD_LANES == 16
  return (U16)_mm512_maskz_cvtps_ph(__mmask16(-1), (__m512)x, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__) && ATTUNE_SIMD_LANES == 8
  return (U16)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#else
  const U32 bits = as_bits(x);
  const U32 magnitude = bits & 0x7fffffffU;
  // Rebias the exponent and round to nearest even in integers; a carry out of the mantissa is right
  // as it is.
  const U32 normal = (magnitude - (112U << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  // Adding 0.5 lines a subnormal result up with the last mantissa bits and lets the addition round
  // it.
  const U32 subnormal = as_bits(as_f32(magnitude) + 0.5F) - 0x3f000000U;
  const U32 finite = (magnitude < (113U << 23)) ? subnormal : normal;
  const U32 infinity = U32{} + 0x7c00U;
  const U32 special = (magnitude > 0x7f800000U) ? U32{} + 0x7e00U : infinity;
  const U32 result =
      (magnitude >= 0x477ff000U) ? special : finite;  // 65520 and above round to infinity
  return __builtin_convertvector(result | ((bits >> 16) & 0x8000U), U16);
#endif
}

// ---- limits ----

// The larger and the smaller of a limit and x; a NaN in x stays. One instruction, which compilers
// do not find.
[[gnu::always_inline]] inline F32 at_least(float limit, F32 x) {
#if defined(__AVX512F__) && ATTUNE_SIMD_LANES == 16
  return (F32)_mm512_maskz_max_ps(__mmask16(-1), (__m512)broadcast(limit), (__m512)x);
#elif defined(__AVX__) && ATTUNE_SIMD_LANES == 8
  return (F32)_mm256_max_ps((__m256)broadcast(limit), (__m256)x);
#else
  return x < limit ? broadcast(limit) : x;
#endif
}

[[gnu::always_inline]] inline F32 at_most(float limit, F32 x) {
#if defined(__AVX512F__) && ATTUNE_SIMD_LANES == 16
  return (F32)_mm512_maskz_min_ps(__mmask16(-1), (__m512)broadcast(limit), (__m512)x);
#elif defined(__AVX__) && ATTUNE_SIMD_LANES == 8
  return (F32)_mm256_min_ps((__m256)broadcast(limit), (__m256)x);
#else
  return x > limit ? broadcast(limit) : x;
#endif
}

// ---- sums over lanes ----

// In lanes without kBit the sum of those of `a` that differ in kBit alone, in the others that of
// `b`. Half of the moving is a choice between lanes, which more units can do than shuffle.
template <int kBit, std::size_t... kIndex>
[[gnu::always_inline]] inline F32 add_halves(F32 a, F32 b, std::index_sequence<kIndex...>) {
  const U32 from_b = {((kIndex & kBit) ? ~0U : 0U)...};
  return (from_b ? b : a) +
         __builtin_shufflevector(
             a, b, ((int(kIndex) & kBit) ? int(kIndex) - kBit + kLanes : int(kIndex) + kBit)...);
}

constexpr int bit_below(int count) {
  int bit = 1;
  while (2 * bit < count) bit *= 2;
  return bit;
}

// Lane i of the result is the sum of the lanes of x[i], for i < kCount <= kLanes; kSummed are the
// bits of lanes over which they are sums already.
template <int kCount, int kSummed = 0>
[[gnu::always_inline]] inline F32 sum_each(const F32* x) {
  if constexpr (kSummed == kLanes - 1) {
    return x[0];
  } else {
    // The highest bit that tells some x from others; then those by which one is added to itself.
    constexpr int kBit = kCount > 1 ? bit_below(kCount) : bit_below(kLanes - kSummed);
    constexpr int kMerged = kCount > 1 ? kBit : 1;
    F32 merged[kMerged];
#pragma GCC unroll 16
    for (int i = 0; i < kMerged; ++i) {
      const F32 other = kCount > 1 && i + kBit < kCount ? x[i + kBit] : x[i];
      merged[i] = add_halves<kBit>(x[i], other, std::make_index_sequence<kLanes>());
    }
    return sum_each<kMerged, kSummed | kBit>(merged);
  }
}

// sums[i] is the sum of the lanes of x[i]; `sums` has room for a whole number of vectors.
template <int kCount>
[[gnu::always_inline]] inline void sum_lanes(const F32* x, float* sums) {
  constexpr int kNow = kCount < kLanes ? kCount : kLanes;
  store(sums, sum_each<kNow>(x));
  if constexpr (kCount > kNow) sum_lanes<kCount - kNow>(x + kNow, sums + kNow);
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE
