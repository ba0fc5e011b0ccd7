// Stochastic rounding of states: between the two neighbours, right on average, and the same bits
// for the same seed and position.
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include <gtest/gtest.h>

#include <attune/core/dtype.hpp>
#include <attune/core/state_rounding.hpp>

namespace attune {
namespace {

using Limits = std::numeric_limits<float>;

std::uint32_t random_of(std::uint64_t seed, std::int64_t row, std::uint32_t column) {
  return state_rounding::random_bits(state_rounding::row_key(seed, row), column);
}

template <class T>
float rounded(float value, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t half = std::is_same_v<T, bf16> ? state_rounding::to_bf16(bits, random)
                                                     : state_rounding::to_f16(bits, random);
  EXPECT_LE(half, 0xffffU);
  return static_cast<float>(T::from_bits(static_cast<std::uint16_t>(half)));
}

template <class T>
class StochasticRounding : public testing::Test {
 public:
  /// The mean of many roundings of one value, and that each is one of its neighbours.
  static double mean_of(float value, float unit) {
    constexpr std::int64_t kRows = 64;
    constexpr std::uint32_t kColumns = 256;
    double sum = 0;
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::uint32_t column = 0; column < kColumns; ++column) {
        const float result = rounded<T>(value, random_of(7, row, column));
        EXPECT_LT(std::abs(result - value), unit);
        sum += result;
      }
    }
    return sum / (kRows * kColumns);
  }
};

using StorageTypes = testing::Types<bf16, f16>;
TYPED_TEST_SUITE(StochasticRounding, StorageTypes);

TYPED_TEST(StochasticRounding, LeavesWhatIsExactAlone) {
  for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
    const auto exact = static_cast<float>(TypeParam::from_bits(static_cast<std::uint16_t>(bits)));
    if (std::isnan(exact)) continue;
    for (const std::uint32_t random : {0U, 0xffffffffU, random_of(1, 2, bits)}) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(rounded<TypeParam>(exact, random)),
                std::bit_cast<std::uint32_t>(exact));
    }
  }
}

TYPED_TEST(StochasticRounding, IsRightOnAverage) {
  constexpr bool kIsBf16 = std::is_same_v<TypeParam, bf16>;
  constexpr float kUnit = kIsBf16 ? 0x1p-7F : 0x1p-10F;  // the distance of neighbours above 1
  for (const double part : {0.001, 0.1, 0.5, 0.9, 0.999}) {
    for (const float sign : {1.0F, -1.0F}) {
      const auto value = sign * static_cast<float>(1 + part * kUnit);
      // Of 16384 samples the mean's standard deviation is at most unit / 256.
      EXPECT_NEAR(this->mean_of(value, kUnit), value, kUnit / 256 * 4) << value;
    }
  }
}

TEST(StochasticRoundingToF16, IsRightOnAverageForSubnormals) {
  using Fixture = StochasticRounding<f16>;
  for (const float value : {0x1.8p-24F, 0x1.1p-25F, 5.3F * 0x1p-24F, -0x1.4p-27F}) {
    EXPECT_NEAR(Fixture::mean_of(value, 0x1p-24F), value, 0x1p-24F / 256 * 4) << value;
  }
  // So small that one sample in 2^40 would be other than zero.
  for (const float value : {0x1p-64F, 0x1p-120F, Limits::denorm_min()}) {
    EXPECT_EQ(Fixture::mean_of(value, 0x1p-24F), 0.0) << value;
  }
}

TYPED_TEST(StochasticRounding, KeepsInfinitiesAndNaN) {
  for (const std::uint32_t random : {0U, 0xffffffffU}) {
    EXPECT_EQ(rounded<TypeParam>(Limits::infinity(), random), Limits::infinity());
    EXPECT_EQ(rounded<TypeParam>(-Limits::infinity(), random), -Limits::infinity());
    EXPECT_TRUE(std::isnan(rounded<TypeParam>(Limits::quiet_NaN(), random)));
    EXPECT_TRUE(std::isnan(rounded<TypeParam>(std::bit_cast<float>(0x7f800001U), random)));
  }
}

TEST(StochasticRoundingToF16, GoesToInfinityOnlyBeyondTheLargest) {
  EXPECT_EQ(rounded<f16>(65504.0F, 0xffffffffU), 65504.0F);
  EXPECT_EQ(rounded<f16>(65519.0F, 0U), 65504.0F);
  EXPECT_EQ(rounded<f16>(65519.0F, 0xffffffffU), Limits::infinity());
  EXPECT_EQ(rounded<f16>(1e6F, 0U), Limits::infinity());
}

TEST(StateRoundingBits, DependOnSeedRowAndColumn) {
  const std::uint32_t bits = random_of(1, 2, 3);
  EXPECT_EQ(random_of(1, 2, 3), bits);
  EXPECT_NE(random_of(2, 2, 3), bits);
  EXPECT_NE(random_of(1, 3, 3), bits);
  EXPECT_NE(random_of(1, 2, 4), bits);
  EXPECT_NE(random_of(1, std::int64_t{2} << 40, 3), bits);
}

TEST(StateRoundingBits, AreEvenAndOfNeighboursIndependent) {
  constexpr int kSamples = 1 << 16;
  std::array<int, 32> ones{};
  int equal_in_next_row = 0, equal_in_next_seed = 0;  // the top four bits
  for (int i = 0; i < kSamples; ++i) {
    const std::int64_t row = i / 128;
    const auto column = static_cast<std::uint32_t>(i % 128);
    const std::uint32_t bits = random_of(3, row, column);
    for (std::size_t bit = 0; bit < ones.size(); ++bit) {
      ones[bit] += static_cast<int>(bits >> bit & 1U);
    }
    equal_in_next_row += bits >> 28U == random_of(3, row + 1, column) >> 28U ? 1 : 0;
    equal_in_next_seed += bits >> 28U == random_of(4, row, column) >> 28U ? 1 : 0;
  }
  // Five standard deviations: 128 of ones, 62 of pairs that are equal by chance.
  for (const int count : ones) EXPECT_NEAR(count, kSamples / 2, 5 * 128);
  EXPECT_NEAR(equal_in_next_row, kSamples / 16, 5 * 62);
  EXPECT_NEAR(equal_in_next_seed, kSamples / 16, 5 * 62);
}

}  // namespace
}  // namespace attune
