// What the tuner makes of its samples, against values reckoned by hand and against the claims of
// the intervals' names.
#include "search/statistics.hpp"

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace attune::tuning {
namespace {

using Values = std::vector<double>;

Values zero_to(int last) {
  Values values(static_cast<std::size_t>(last) + 1);
  std::iota(values.begin(), values.end(), 0.0);
  return values;
}

TEST(Median, IsTheMiddleOrTheMeanOfTheTwoMiddleOnes) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({3, 100, 1}), 3);
  EXPECT_EQ(median({8, 1, 100, 2}), 5);
  EXPECT_EQ(median_deviation({1, 2, 3, 4, 1000}), 1);
  EXPECT_EQ(median_deviation({1, 2, 3, 4}), 1);
}

TEST(MedianUncertainty, ShrinksWithTheRootOfTheCountAndGrowsWithTheSpread) {
  EXPECT_EQ(median_uncertainty({1, 2, 3}), std::numeric_limits<double>::infinity());
  // 2.576 standard errors; a median's is 1.2533 times a mean's; 1.4826 deviations are a sigma.
  EXPECT_NEAR(median_uncertainty({1, 2, 3, 4}), 2.576 * 1.2533 * 1.4826 * 1 / 2, 1e-3);
  Values sixteen;
  for (int i = 0; i < 4; ++i) sixteen.insert(sixteen.end(), {10, 20, 30, 40});
  EXPECT_NEAR(median_uncertainty(sixteen), 10 * median_uncertainty({1, 2, 3, 4}) / 2, 1e-9);
  EXPECT_EQ(median_uncertainty(Values(8, 5.0)), 0);
}

TEST(MedianInterval, IsTwoOfTheValuesByTheirRanks) {
  const Interval of_100 = median_interval(zero_to(99));
  EXPECT_EQ(of_100.low, 37);  // 50 - 2.576 * sqrt(100) / 2
  EXPECT_EQ(of_100.high, 62);
  const Interval of_11 = median_interval({10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
  EXPECT_EQ(of_11.low, 1);
  EXPECT_EQ(of_11.high, 9);
  for (int last = 0; last < 8; ++last) {
    const Interval range = median_interval(zero_to(last));
    EXPECT_EQ(range.low, 0) << last;
    EXPECT_EQ(range.high, last) << last;
  }
}

TEST(MedianInterval, HoldsTheMedianOfASkewedDistributionIn99OfAHundred) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> skewed;
  for (const std::size_t count : {8U, 24U, 101U}) {
    constexpr int kTrials = 4000;
    int held = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      Values values(count);
      for (double& value : values) value = skewed(random);
      const Interval interval = median_interval(values);
      held += interval.low <= std::log(2.0) && std::log(2.0) <= interval.high ? 1 : 0;
    }
    EXPECT_GE(held, 0.985 * kTrials) << count;
    EXPECT_LE(held, 0.998 * kTrials) << count;
  }
}

/// `count` values whose median is 100 and whose median deviation is `deviation`.
Values around_100(std::size_t count, double deviation) {
  Values values;
  while (values.size() < count) {
    values.push_back(100);
    values.push_back(100 - deviation);
    values.push_back(100 + deviation);
    values.push_back(100 + (values.size() % 8 == 3 ? deviation : -deviation));
  }
  return values;
}

TEST(NoiseGrade, IsByTheSpreadAndTheWorseOneAtItsBound) {
  ASSERT_EQ(median_deviation(around_100(8, 1)), 1);
  EXPECT_EQ(noise_grade(around_100(8, 0)), NoiseGrade::kA);
  EXPECT_EQ(noise_grade(around_100(8, 0.9)), NoiseGrade::kA);
  EXPECT_EQ(noise_grade(around_100(8, 1)), NoiseGrade::kB);
  EXPECT_EQ(noise_grade(around_100(8, 2.9)), NoiseGrade::kB);
  EXPECT_EQ(noise_grade(around_100(8, 3)), NoiseGrade::kC);
}

TEST(NoiseGrade, TakesEightSamplesToCallASessionQuiet) {
  EXPECT_EQ(noise_grade({}), NoiseGrade::kC);
  EXPECT_EQ(noise_grade(Values(7, 100.0)), NoiseGrade::kC);
  EXPECT_EQ(noise_grade(Values(8, 100.0)), NoiseGrade::kA);
}

}  // namespace
}  // namespace attune::tuning
