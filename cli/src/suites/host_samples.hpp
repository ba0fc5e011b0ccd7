// Samples of work on the host that may share its cores with others.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "suites/measure.hpp"

namespace attune::cli {

/// Something to time.
using HostWork = std::function<void()>;

/// Short work that takes longer while others use what cores share: caches, the way to memory and,
/// in a virtual machine, the units of a core of which it has but one of two threads. No clock of
/// this process tells of them.
class QuietProbe {
 public:
  explicit QuietProbe(HostWork work) : work_(std::move(work)) {}

  /// The shortest of a few runs, the first of which brings back what the work needs.
  double time_us();
  /// Whether a time of the work says that nobody disturbed it: it is near the shortest so far.
  bool is_quiet(double us) const;

 private:
  HostWork work_;
  double shortest_us_ = std::numeric_limits<double>::infinity();
};

struct HostRounds {
  std::vector<std::vector<double>> us;  // of each work, in the rounds that count
  double kept = 0;                      // share of the rounds that count
};

/// Times every work once a round. A round counts when nobody else took its cores: in each of its
/// samples the calling thread ran for at least 96 % of the time, no thread of the process was
/// preempted, and `probes` were quiet right before and after it; a sample of which that is not so
/// is taken up to four times. Where fewer than three rounds count, all do, and `kept` is 0. Before
/// each sample its work runs once, untimed.
HostRounds take_rounds(std::span<const HostWork> works, const MeasureSettings& settings,
                       std::span<QuietProbe> probes = {});

/// The median over rounds of a / b.
double median_ratio(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace attune::cli
