#include "search/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace attune::tuning {
namespace {

constexpr std::size_t kFewestForInterval = 4;
constexpr std::size_t kFewestForGrade = 8;
constexpr double kZ99 = 2.576;  // two-sided 99 % quantile of the normal distribution
constexpr double kMedianEfficiency =
    1.2533;  // standard error of a median over that of a mean, sqrt(pi / 2)
constexpr double kSigmaOfDeviation = 1.4826;  // standard deviation over median deviation

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double median_deviation(const std::vector<double>& values) {
  const double center = median(values);
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double value : values) distances.push_back(std::abs(value - center));
  return median(std::move(distances));
}

double median_uncertainty(const std::vector<double>& values) {
  if (values.size() < kFewestForInterval) return std::numeric_limits<double>::infinity();
  return kZ99 * kMedianEfficiency * kSigmaOfDeviation * median_deviation(values) /
         std::sqrt(static_cast<double>(values.size()));
}

Interval median_interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const double half_width = kZ99 * std::sqrt(n) / 2;  // of the median's rank, which is binomial
  const auto at = [&](double rank) {
    return values[static_cast<std::size_t>(std::clamp(rank, 0.0, n - 1))];
  };
  return {at(n / 2 - half_width), at(n / 2 + half_width)};
}

NoiseGrade noise_grade(const std::vector<double>& samples) {
  if (samples.size() < kFewestForGrade) return NoiseGrade::kC;
  const double spread = median_deviation(samples) / median(samples);
  if (spread < 0.01) return NoiseGrade::kA;
  return spread < 0.03 ? NoiseGrade::kB : NoiseGrade::kC;
}

}  // namespace attune::tuning
