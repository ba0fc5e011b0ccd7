// Element types, and the two 16-bit floating-point types as storage.
//
// bf16 and f16 are storage types: they convert to and from float and do no arithmetic. Conversion
// from float rounds to nearest, ties to even; a NaN stays a NaN (quiet, sign kept); values beyond
// the largest finite one become infinite. bf16 is the upper half of an IEEE 754 binary32; f16 is
// IEEE 754 binary16, subnormals included.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>

namespace attune {

enum class DType : std::int32_t { kF32, kF16, kBF16, kI32, kI64 };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kI64:
      return 8;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

/// "f32", "f16", "bf16", "i32" or "i64".
constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
  }
  return "?";
}

inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << to_string(dtype); }

/// bfloat16: 1 sign, 8 exponent, 7 fraction bits.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit constexpr bf16(float value) : bits(round(value)) {}
  explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
  static constexpr bf16 from_bits(std::uint16_t bits) {
    bf16 result{};
    result.bits = bits;
    return result;
  }
  friend constexpr bool operator==(bf16 a, bf16 b) { return float(a) == float(b); }

 private:
  static constexpr std::uint16_t round(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    if ((wide & 0x7fffffffU) > 0x7f800000U) {  // NaN: rounding could carry it into infinity
      return static_cast<std::uint16_t>((wide >> 16U) | 0x0040U);
    }
    const std::uint32_t to_even = 0x7fffU + ((wide >> 16U) & 1U);
    return static_cast<std::uint16_t>((wide + to_even) >> 16U);
  }
};

/// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits.
struct f16 {
  std::uint16_t bits = 0;

  f16() = default;
  explicit constexpr f16(float value) : bits(round(value)) {}
  explicit constexpr operator float() const {
    const std::uint32_t sign = (bits & 0x8000U) << 16U;
    const std::uint32_t exponent = (bits >> 10U) & 0x1fU;
    const std::uint32_t fraction = bits & 0x3ffU;
    if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | (fraction << 13U));
    if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in binary32
      const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
      return sign != 0 ? -magnitude : magnitude;
    }
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (fraction << 13U));
  }
  static constexpr f16 from_bits(std::uint16_t bits) {
    f16 result{};
    result.bits = bits;
    return result;
  }
  friend constexpr bool operator==(f16 a, f16 b) { return float(a) == float(b); }

 private:
  static constexpr std::uint16_t round(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((wide >> 16U) & 0x8000U);
    const std::uint32_t magnitude = wide & 0x7fffffffU;
    if (magnitude > 0x7f800000U) {
      return static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13U) & 0x3ffU));
    }
    if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // >= 65520
    if (magnitude < 0x38800000U) {               // below 2^-14: a subnormal, in units of 2^-24
      if (magnitude < 0x33000000U) return sign;  // below 2^-25: zero
      const std::uint32_t shift = 126U - (magnitude >> 23U);
      const std::uint32_t fraction = (magnitude & 0x7fffffU) | 0x800000U;
      return static_cast<std::uint16_t>(sign | round_shift(fraction, shift));
    }
    return static_cast<std::uint16_t>(sign | round_shift(magnitude - 0x38000000U, 13U));
  }
  /// `value` / 2^shift, rounded to nearest, ties to even. A carry runs into the exponent, as it
  /// should.
  static constexpr std::uint32_t round_shift(std::uint32_t value, std::uint32_t shift) {
    const std::uint32_t half = 1U << (shift - 1U);
    const std::uint32_t result = value >> shift;
    const std::uint32_t rest = value & ((1U << shift) - 1U);
    return result + ((rest > half || (rest == half && (result & 1U) != 0)) ? 1U : 0U);
  }
};

static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2);

/// The DType of a C++ element type.
template <class T>
inline constexpr DType kDTypeOf = [] {
  static_assert(sizeof(T) == 0, "not an element type of attune");
  return DType::kF32;
}();
template <>
inline constexpr DType kDTypeOf<float> = DType::kF32;
template <>
inline constexpr DType kDTypeOf<f16> = DType::kF16;
template <>
inline constexpr DType kDTypeOf<bf16> = DType::kBF16;
template <>
inline constexpr DType kDTypeOf<std::int32_t> = DType::kI32;
template <>
inline constexpr DType kDTypeOf<std::int64_t> = DType::kI64;

}  // namespace attune
