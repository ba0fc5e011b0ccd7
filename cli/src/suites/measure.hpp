// Timing for people: `run` and `bench`. Decisions are the tuner's, which measures with more care.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <attune/core/case.hpp>
#include <attune/core/op.hpp>
#include <attune/core/selection.hpp>

#include "program/options.hpp"

namespace attune::cli {

using Cases = std::vector<std::unique_ptr<Case>>;

/// As many cases of a problem, with equal inputs and all outputs zero, as a launch must take in
/// turns to find none of its tensors in the device's cache. One on the host, where a caller's
/// tensors are mostly in the cache as well.
Cases cases_to_rotate(const OpInfo& op, ProblemRef problem, const Device& device,
                      std::uint64_t seed);
/// The same of cases that `make` makes.
Cases cases_to_rotate(const OpInfo& op, const Device& device,
                      const std::function<std::unique_ptr<Case>()>& make);

/// A choice bound to cases of one problem, which it takes in turns, again and again with the same
/// scratch memory. All outlive it.
class Launch {
 public:
  Launch(std::span<const std::unique_ptr<Case>> on, const Choice& choice, const Device& device);

  /// Microseconds of `repeats` launches, back to back.
  double time_us(int repeats) const;
  /// Repeats that take every case once.
  int round() const { return static_cast<int>(cases_.size()); }
  const Choice& choice() const { return choice_; }

 private:
  std::span<const std::unique_ptr<Case>> cases_;
  Choice choice_;
  const Device* device_;
  Tensor workspace_;
  std::span<std::byte> scratch_;  // of workspace_
};

struct Timing {
  double median_us = 0;
  double spread = 0;  // median absolute deviation / median
  std::int64_t samples = 0;
};

/// The value in the middle, or between the two in the middle. Of one value at least.
double median_of(std::vector<double> values);

/// Of one launch's samples; nothing from no samples.
Timing summarize(std::vector<double> samples_us);

struct MeasureSettings {
  std::int64_t warmup = 3;      // samples discarded, of each
  std::int64_t iters = 30;      // most samples, of each
  double min_sample_us = 1000;  // a sample repeats the launch until it lasts this long
  double budget_us = 1e6;       // of all samples of one launch; three are taken in any case
  std::function<bool()> stop = [] { return false; };
};

/// As --warmup and --iters say, until an interrupt.
MeasureSettings measure_settings(const Options& options);

/// Takes samples in rounds, one of each launch a round, so that a drifting clock moves all alike.
std::vector<Timing> measure(std::span<const Launch> launches, const MeasureSettings& settings);

}  // namespace attune::cli
