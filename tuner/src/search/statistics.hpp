// Order statistics of timings, whose outliers are common and one-sided: no means, no standard
// deviations.
#pragma once

#include <vector>

#include <attune/cache/config_row.hpp>

namespace attune::tuning {

/// The middle value, or the mean of the two middle ones; 0 for no values.
double median(std::vector<double> values);

/// The median distance from the median.
double median_deviation(const std::vector<double>& values);

/// Half the width of a 99 % confidence interval of the median, for a normal distribution with the
/// values' median deviation. Infinite for fewer than four values.
double median_uncertainty(const std::vector<double>& values);

struct Interval {
  double low = 0, high = 0;
};

/// A 99 % confidence interval of the median, whatever the distribution: two of the values, by their
/// ranks. Of fewer than eight, their range, which is less sure. At least one value.
Interval median_interval(std::vector<double> values);

/// How quiet the machine was, by the samples (each above 0) of a candidate that was timed all
/// along.
NoiseGrade noise_grade(const std::vector<double>& samples);

}  // namespace attune::tuning
