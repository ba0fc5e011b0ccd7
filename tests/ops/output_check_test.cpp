// What an output may differ by, at the bounds.

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/operand_case.hpp>

namespace attune {
namespace {

Tensor values(const std::vector<float>& given) {
  return Tensor::of(given, {static_cast<std::int64_t>(given.size())});
}

OutputCheck check(const std::vector<float>& actual, const std::vector<float>& expected,
                  const Tolerances& tolerances, const SummandRms& summand_rms = {}) {
  return check_output("x", values(actual), values(expected), tolerances, summand_rms);
}

TEST(OutputCheck, MayDifferByExactlyItsTolerance) {
  const Tolerances half{.tensor = 0.5, .gate_gradient = 4};
  EXPECT_TRUE(check({1.5F, 1.5F}, {1, 1}, half).passed);
  EXPECT_FALSE(check({1.5F, 1.5001F}, {1, 1}, half).passed);
  EXPECT_EQ(check({1.5F, 1.5F}, {1, 1}, half).error, 0.5);
}

TEST(OutputCheck, OfAGateMayDifferByWhatItsSummandsMay) {
  const Tolerances tolerances{.tensor = 0.5, .gate_gradient = 1};
  int asked = 0;
  const SummandRms of_four = [&] {
    ++asked;
    return 4.0;
  };
  EXPECT_TRUE(check({2}, {1}, tolerances, of_four).passed);
  EXPECT_EQ(asked, 0) << "it is within its own tolerance";
  EXPECT_TRUE(check({3}, {1}, tolerances, of_four).passed) << "0.5 * 4 / 1";
  EXPECT_FALSE(check({3.01F}, {1}, tolerances, of_four).passed);
  EXPECT_EQ(check({3.01F}, {1}, tolerances, of_four).tolerance, 2);
  EXPECT_TRUE(check({5}, {2}, tolerances, [] { return 1.0; }).tolerance == 1) << "never less";
  // Of a gradient that should be 0, the summands alone say how far it may be off.
  EXPECT_TRUE(check({2}, {0}, tolerances, of_four).passed);
  EXPECT_FALSE(check({2.01F}, {0}, tolerances, of_four).passed);
}

TEST(OutputCheck, OfZerosIsByItsSize) {
  const Tolerances tolerances{.tensor = 0.5, .gate_gradient = 1};
  EXPECT_EQ(check({0, 0}, {0, 0}, tolerances).tolerance, kAbsoluteTolerance);
  EXPECT_TRUE(check({0, 0}, {0, 0}, tolerances).passed);
  const auto most = static_cast<float>(kAbsoluteTolerance);
  EXPECT_FALSE(check({2 * most}, {0}, tolerances).passed);
  EXPECT_TRUE(check({0.9F * most}, {0}, tolerances).passed);
}

TEST(OutputCheck, WhatVanishesInF32MayBeAnything) {
  const Tolerances tolerances{.tensor = 1e-5, .gate_gradient = 1e-5};
  constexpr float kTiny = 1e-39F;  // subnormal
  EXPECT_TRUE(check({0}, {kTiny}, tolerances).passed);
  EXPECT_TRUE(check({1 + kTiny}, {1}, tolerances).passed);
  constexpr float kSmallestNormal = std::numeric_limits<float>::min();
  EXPECT_FALSE(check({0}, {4 * kSmallestNormal}, tolerances).passed);
}

/// Any number of values, of each type: the first that is not finite is named, wherever it lies, and
/// the largest finite one is not.
template <class T>
void expect_first_not_finite_named(float largest) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float kinds[] = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()};
  for (const int count : {1, 255, 256, 257, 1000}) {
    std::vector<T> given(static_cast<std::size_t>(count), T(-largest));
    given.back() = T(largest);
    const auto check_given = [&] {
      const NamedTensor output{"x", {given.data(), Extents{count}}};
      const Digest digest = digests_of({&output.view, 1}, cpu_device()).front();
      return check_finite(output, digest, cpu_device());
    };
    EXPECT_TRUE(check_given().passed) << count;
    for (const int at : {count - 1, count / 2, 0}) {
      given[static_cast<std::size_t>(at)] = T(kinds[at % 3]);
      const OutputCheck check = check_given();
      EXPECT_FALSE(check.passed) << count << " at " << at;
      EXPECT_NE(check.reason.find(" at [" + std::to_string(at) + "]"), std::string::npos)
          << check.reason;
    }
  }
}
TEST(OutputCheck, NamesTheFirstThatIsNotFinite) {
  expect_first_not_finite_named<float>(std::numeric_limits<float>::max());
  expect_first_not_finite_named<bf16>(3.3895314e38F);
  expect_first_not_finite_named<f16>(65504);
}

TEST(OutputCheck, RmsLeavesOutWhatIsNotFinite) {
  EXPECT_EQ(rms({}), 0);
  EXPECT_EQ(rms({3, 4, 0, 0}), 2.5);
  EXPECT_EQ(rms({6, std::numeric_limits<double>::infinity(), std::nan(""), 0}), 3);
}

}  // namespace
}  // namespace attune
