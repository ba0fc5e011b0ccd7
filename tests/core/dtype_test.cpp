#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include <attune/core/dtype.hpp>

namespace attune {
namespace {

/// The value of a binary16 or bfloat16 by its definition, in double: sign * 2^e * fraction.
double value_by_definition(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  const double significand = std::ldexp(fraction, -fraction_bits) + (exponent == 0 ? 0.0 : 1.0);
  return sign * std::ldexp(significand, std::max(exponent, 1) - bias);
}

template <class Half>
void expect_every_value_converts(int exponent_bits, int fraction_bits) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = Half::from_bits(static_cast<std::uint16_t>(bits));
    const double expected = value_by_definition(half.bits, exponent_bits, fraction_bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(float(half))) << bits;
      ASSERT_TRUE(std::isnan(float(Half(float(half))))) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(float(half)), expected) << bits;
      ASSERT_EQ(std::signbit(float(half)), std::signbit(expected)) << bits;
      ASSERT_EQ(Half(float(half)).bits, half.bits) << "round trip of " << bits;
    }
  }
}

TEST(Bf16, ConvertsAllBitPatternsBothWays) { expect_every_value_converts<bf16>(8, 7); }
TEST(F16, ConvertsAllBitPatternsBothWays) { expect_every_value_converts<f16>(5, 10); }

/// Between each pair of neighbours: below the middle rounds down, above rounds up, the middle to
/// the even one.
template <class Half>
void expect_rounding_to_nearest_even(std::uint16_t largest_finite) {
  for (std::uint16_t bits = 0; bits < largest_finite; ++bits) {
    const auto upper_bits = static_cast<std::uint16_t>(bits + 1);
    const float low = float(Half::from_bits(bits));
    const float high = float(Half::from_bits(upper_bits));
    const float middle =
        static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
    const std::uint16_t even = (bits & 1) == 0 ? bits : upper_bits;
    ASSERT_EQ(Half(middle).bits, even) << bits;
    ASSERT_EQ(Half(std::nextafter(middle, low)).bits, bits) << bits;
    ASSERT_EQ(Half(std::nextafter(middle, high)).bits, upper_bits) << bits;
    ASSERT_EQ(Half(-middle).bits, even | 0x8000) << bits;
  }
}

TEST(F16, RoundsToNearestEvenBetweenAllNeighbours) { expect_rounding_to_nearest_even<f16>(0x7bff); }
TEST(Bf16, RoundsToNearestEvenBetweenAllNeighbours) {
  // Below 2^-126 the middles are subnormal floats, exact all the same.
  expect_rounding_to_nearest_even<bf16>(0x7f7f);
}

TEST(F16, OverflowsToInfinityFromHalfAStepBeyondTheLargest) {
  EXPECT_EQ(f16(65519.996F).bits, 0x7bff);
  EXPECT_EQ(f16(65520.0F).bits, 0x7c00);
  EXPECT_EQ(f16(-1e30F).bits, 0xfc00);
}

TEST(Bf16, OverflowsToInfinity) {
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(bf16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::kBF16), 2U);
  EXPECT_EQ(size_of(DType::kI64), 8U);
  EXPECT_EQ(to_string(DType::kBF16), "bf16");
  EXPECT_FALSE(is_floating(DType::kI32));
}

}  // namespace
}  // namespace attune
