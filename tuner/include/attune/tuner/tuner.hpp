// The tuner: which of the candidates for a problem is right, and fastest. A search has four steps:
//
//   1. filter        the kernel takes the problem, the config fits it, and it is not in quarantine;
//                    where a kernel has too many configs to race, a search among them says which
//                    to try while there is time (half of the budget)
//   2. correctness   against the oracle on the op's reduced problem; at full size two runs, over
//                    outputs filled with different bytes, are finite and give the same bits
//   3. race          interleaved rounds in random order, with the default in every round as anchor:
//                    a sample counts relative to its anchor, so that a drifting clock moves all
//                    alike; candidates that are clearly slower leave
//   4. confirmation  the winner in alternation with the default and with the incumbent; it replaces
//                    them only when it takes at least 1.5 % less time
//
// Times are compared only within one search. The design and its evidence: docs/architecture.md,
// docs/tuning.md.
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
#include <attune/core/selection.hpp>

namespace attune {

class Objective;  // objective.hpp

namespace tuning {
class CandidateRunner;
struct Workload;
}  // namespace tuning

/// A kernel with a config: what a problem can be computed by.
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
  double median_us = 0;  // of its samples, or in the objective's unit; 0 when it was not timed
  double relative = 0;   // median of sample / anchor; below 1 is better than the default
  double spread = 0;     // median absolute deviation / median
  std::int64_t samples = 0;
  double error = 0;  // worst relative RMS error on the reduced problem
};

struct TuneResult {
  std::vector<Trial> trials;
  std::int64_t winner = -1;         // index of the choice; -1: none can be used, see the trials
  std::int64_t default_trial = -1;  // index of the default
  bool incumbent_kept = false;      // nothing was at least 1.5 % faster than the incumbent
  bool complete =
      false;  // false: the budget ended before the race did, or before a large space did
  NoiseGrade noise = NoiseGrade::kC;
  std::chrono::microseconds elapsed{0};
  std::chrono::microseconds preparing{0};  // besides, what kernels compiled before they ran
};

class Tuner {
 public:
  struct Settings {
    int warmup = 5;   // samples discarded, per candidate
    int iters = 100;  // most samples taken, per candidate
    std::chrono::milliseconds budget{2000};
    /// Of kernels that compile before they run, for all candidates together, besides `budget`.
    std::chrono::milliseconds prepare_budget{10'000};
    double hysteresis = 0.015;  // how much less time than default and incumbent a winner takes
    double drop_ratio = 1.10;   // a candidate this much slower than the best leaves the race
    /// A sample repeats the launch until it lasts this long; 0: 1000 on the host, 200 elsewhere.
    double min_sample_us = 0;
    std::uint64_t seed = 1;  // of the inputs, and of the order in the race
    std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
    /// Asked between samples: true ends the search, as for Ctrl-C or while a stream is captured.
    std::function<bool()> stop = [] { return false; };
    /// What is minimised; null: the time. Times in results are then scores of the objective.
    std::shared_ptr<const Objective> objective = {};
    /// Where candidates run (candidate_runner.hpp); empty: in this process.
    std::function<std::unique_ptr<tuning::CandidateRunner>(const tuning::Workload&)> make_runner;
  };

  /// `warmup` and `iters` as in Settings. Throws InvalidArgument unless warmup >= 0, iters >= 1.
  Tuner(int warmup, int iters);
  explicit Tuner(Settings settings) : settings_(std::move(settings)) {}

  struct Request {
    const OpInfo* op = nullptr;
    ProblemRef problem;
    const Device* device = nullptr;
    std::vector<const RegisteredKernel*> kernels;  // that compete; the first has the default
    /// Says what is right: find_oracle()'s. Null: the default does.
    const RegisteredKernel* oracle = nullptr;
    Candidate incumbent;           // what is stored now; kernel null: nothing is
    Constraints constraints = {};  // candidates that break one are kUnsupported
    /// What problems like this one were tuned to: where the search of a large space begins, beside
    /// the default. Asked where a kernel has one.
    std::function<std::vector<Candidate>()> neighbours = [] { return std::vector<Candidate>(); };
    /// Why a candidate is not to be tried (quarantine), or "".
    std::function<std::string(const Candidate&)> refuse = [](const Candidate&) {
      return std::string();
    };
    /// Told of each trial as soon as its outcome is known.
    std::function<void(const Trial&)> on_trial = [](const Trial&) {};
  };

  /// Never throws for what a candidate does. Throws Unsupported when no kernel takes the problem,
  /// ExecutionError when the objective cannot be measured, and what making the problem's tensors
  /// throws.
  TuneResult tune(const Request& request) const;

  const Settings& settings() const { return settings_; }

 private:
  Settings settings_;
};

/// The kernel of platform "reference" that says what is right for an op on `device`: the device's
/// own, else one of any backend, else the host's. Null where there is none.
const RegisteredKernel* find_oracle(const Registry& registry, std::string_view op,
                                    const Device& device);

/// Where it runs for calls of `device`: there, or on the host, which is then the device that its
/// supports() is asked about.
const Device& oracle_device(const RegisteredKernel& oracle, const Device& device);

}  // namespace attune
