// What a tuning tries, in which order.
#pragma once

#include <cstdint>
#include <vector>

#include <attune/tuner/tuner.hpp>

namespace attune::tuning {

struct Candidates {
  std::vector<Trial>
      trials;  // the default, the incumbent, then the rest, one kernel after the other in turn
  std::int64_t default_trial = -1;
  std::int64_t incumbent_trial =
      -1;  // may be the default; -1: there is none, or it does not fit any more
};

/// All candidates of the kernels that support the problem, each once. Those that do not fit or are
/// refused are settled already; the others are kNotReached. Throws Unsupported when no kernel
/// supports the problem.
Candidates collect_candidates(const Tuner::Request& request);

/// Whether a trial may still be tried.
bool is_open(const Trial& trial);

}  // namespace attune::tuning
