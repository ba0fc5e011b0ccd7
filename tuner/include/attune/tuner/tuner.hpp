// The tuner: which of the candidates for a problem is right, and fastest.
//
//   filter       supports, fits, quarantine: no time spent
//   correctness  each candidate against the oracle on the op's reduced problem, and at full size
//   twice with different
//                poison: outputs finite, and equal both times
//   race         interleaved rounds in random order, the default in every round as anchor; samples
//   are divided by
//                their round's anchor, so that a drifting clock moves all alike; losers leave
//   confirm      the winner against the default and the incumbent, in alternation; it replaces the
//   incumbent only
//                when it is at least 1.5 % faster
//
// Times are only ever compared within one session. The design and its evidence:
// docs/architecture.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <attune/cache/config_row.hpp>
#include <attune/core/events.hpp>
#include <attune/core/op.hpp>
#include <attune/core/registry.hpp>

namespace attune {

namespace tuning {
class CandidateRunner;
struct Workload;
}  // namespace tuning

struct Candidate {
  const ErasedKernel* kernel = nullptr;
  ConfigBlob config;
};

enum class TrialOutcome {
  kOk,           // right, and raced to the end
  kSlow,         // right, and left the race behind
  kUnsupported,  // the kernel does not take the problem, or the config does not fit it
  kQuarantined,  // not tried: it crashed, hung or was wrong before
  kWrong,        // differs from the oracle, is not finite, or does not give the same twice
  kFailed,       // threw
  kCrashed,      // ended or blocked the process it ran in, or lost the device
  kNotReached,   // the budget ended first
};
std::string_view to_string(TrialOutcome outcome);

/// One candidate's result. A value: candidates that fail are expected, and counted.
struct Trial {
  Candidate candidate;
  TrialOutcome outcome = TrialOutcome::kNotReached;
  std::string reason;
  double median_us = 0;  // of its samples; 0 when it was not timed
  double relative = 0;  // median of sample / the round's anchor; below 1 is faster than the default
  double spread = 0;    // median absolute deviation / median
  std::int64_t samples = 0;
  double error = 0;  // worst relative RMS error on the reduced problem
};

struct TuneResult {
  std::vector<Trial> trials;
  std::int64_t winner = -1;  // index of the choice; -1: no candidate can be used, see the trials
  std::int64_t default_trial = -1;  // the heuristic's
  bool incumbent_kept = false;      // nothing was at least 1.5 % faster than what was stored
  bool complete = false;            // false: the budget ended before the race did
  NoiseGrade noise = NoiseGrade::kC;
  std::chrono::microseconds elapsed{0};
};

class Tuner {
 public:
  struct Settings {
    int warmup = 5;   // samples discarded, per candidate
    int iters = 100;  // most samples taken, per candidate
    std::chrono::milliseconds budget{2000};
    double hysteresis = 0.015;  // how much faster than default and incumbent a winner must be
    double drop_ratio = 1.10;   // leaves the race when this much slower than the best
    /// A sample repeats the launch until it lasts this long; 0: 1000 on the host, 200 elsewhere.
    double min_sample_us = 0;
    std::uint64_t seed = 1;  // of inputs and of the race's order
    std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
    std::function<bool()> stop = [] { return false; };  // asked between samples: Ctrl-C, a capture
    /// Where candidates run (candidate_runner.hpp); empty: in this process.
    std::function<std::unique_ptr<tuning::CandidateRunner>(const tuning::Workload&)> make_runner;
  };

  Tuner(int warmup, int iters);
  explicit Tuner(Settings settings) : settings_(std::move(settings)) {}

  struct Request {
    const OpInfo* op = nullptr;
    ProblemRef problem;
    const Device* device = nullptr;
    std::vector<const RegisteredKernel*> kernels;  // that compete, the default first
    const RegisteredKernel* oracle =
        nullptr;          // null: candidates are checked against each other's default
    Candidate incumbent;  // kernel null: none
    /// The reason not to try a candidate, or "".
    std::function<std::string(const Candidate&)> refuse = [](const Candidate&) {
      return std::string();
    };
    std::function<void(const Trial&)> on_trial = [](const Trial&) {};  // as each one is settled
  };

  /// Never throws for what a candidate does. Throws Unsupported when there is no candidate at all.
  TuneResult tune(const Request& request) const;

  const Settings& settings() const { return settings_; }

 private:
  Settings settings_;
};

}  // namespace attune
