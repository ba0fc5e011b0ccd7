// A place to run candidates that does as a test says, on a clock of its own.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

#include <attune/tuner/candidate_runner.hpp>

#include "search/race.hpp"

namespace attune::test {

/// Candidate `id`, which is never run.
inline Candidate numbered(int id) {
  Candidate candidate;
  candidate.config.bytes[0] = static_cast<std::byte>(id);
  return candidate;
}
inline int number_of(const Candidate& candidate) {
  return std::to_integer<int>(candidate.config.bytes[0]);
}

class ScriptedRunner final : public tuning::CandidateRunner {
 public:
  std::optional<tuning::Verdict> check_reduced(const Candidate&, int) override {
    return tuning::Verdict{};
  }
  tuning::Verdict check_at_full_size(const Candidate&, const Candidate*) override { return {}; }
  std::string device_failure() override { return ""; }

  double time_us(const Candidate& candidate, int repeats) override {
    timed.push_back(number_of(candidate));
    const double us = cost_us(number_of(candidate)) * repeats;
    now_us += us;
    return us;
  }

  /// How often a candidate was timed.
  std::ptrdiff_t samples_of(int id) const { return std::count(timed.begin(), timed.end(), id); }

  std::chrono::steady_clock::time_point now() const {
    return std::chrono::steady_clock::time_point(
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(
            std::chrono::duration<double, std::micro>(now_us)));
  }

  std::function<double(int id)> cost_us = [](int) { return 100.0; };  // of a launch; may throw
  std::vector<int> timed;                                             // by number, one a sample
  double now_us = 0;
};

/// Tuning settings on the runner's clock, without warm-up.
inline Tuner::Settings settings_on(const ScriptedRunner& runner) {
  Tuner::Settings settings;
  settings.warmup = 0;
  settings.budget = std::chrono::seconds(10);
  settings.now = [&runner] { return runner.now(); };
  return settings;
}

inline tuning::Racer racer(int id, double estimate_us = 100, int repeats = 1) {
  tuning::Racer made;
  made.trial = static_cast<std::size_t>(id);
  made.candidate = numbered(id);
  made.sample_us = estimate_us * repeats;
  made.estimate = estimate_us;
  made.repeats = repeats;
  return made;
}

[[noreturn]] inline double fail_as(TrialOutcome outcome, const std::string& reason) {
  throw tuning::CandidateFailure(outcome, reason);
}

}  // namespace attune::test
