// Samples of work on the host that may share its cores with others.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "measure.hpp"

namespace attune::cli {

/// Something to time, and how many threads are busy while it runs.
struct HostWork {
  std::function<void()> run;
  int threads = 1;
};

struct HostRounds {
  std::vector<std::vector<double>> us;  // of each work, in the rounds that count
  double kept = 0;                      // share of the rounds that count
};

/// Times every work once a round. A round counts when no other process took its cores: in each of
/// its samples the process had at least 96 % of its threads' time. Where fewer than three of them
/// count, all do, and `kept` is 0.
HostRounds take_rounds(std::span<const HostWork> works, const MeasureSettings& settings);

/// The median over rounds of a / b.
double median_ratio(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace attune::cli
