// Samples of work on the host that may share its cores with others.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "measure.hpp"

namespace attune::cli {

/// Something to time.
using HostWork = std::function<void()>;

struct HostRounds {
  std::vector<std::vector<double>> us;  // of each work, in the rounds that count
  double kept = 0;                      // share of the rounds that count
};

/// Times every work once a round. A round counts when nobody else took its cores: in each of its
/// samples the calling thread ran for at least 96 % of the time and no thread of the process was
/// preempted. Where fewer than three of them count, all do, and `kept` is 0.
HostRounds take_rounds(std::span<const HostWork> works, const MeasureSettings& settings);

/// The median over rounds of a / b.
double median_ratio(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace attune::cli
