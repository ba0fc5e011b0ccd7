// Where candidates run: the interface between the tuner, which decides, and what checks and times.
//
// The tuner asks for one check, or a few samples, after the other and keeps all results, so a runner
// may be lost on the way: `attune tune` runs candidates in a worker process, which a candidate may
// crash, hang, or leave with an unusable device, and goes on with a fresh one. Without
// Settings::make_runner candidates run in this process.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <attune/core/device.hpp>
#include <attune/core/error.hpp>
#include <attune/core/op.hpp>
#include <attune/core/registry.hpp>
#include <attune/tuner/tuner.hpp>

namespace attune::tuning {

/// The reason of a candidate that failed for lack of memory. Others may have used the memory.
inline constexpr std::string_view kOutOfMemory = "out of memory";

/// Whether a candidate is right.
struct Verdict {
  TrialOutcome outcome = TrialOutcome::kOk;  // or kWrong, kFailed, kCrashed, with a reason
  std::string reason;
  double error = 0;  // worst relative RMS error of an output
  bool ok() const { return outcome == TrialOutcome::kOk; }
};

/// A candidate could not be timed: it threw (kFailed), or ended the process it ran in (kCrashed).
class CandidateFailure : public Error {
 public:
  CandidateFailure(TrialOutcome outcome, const std::string& reason)
      : Error(reason), outcome_(outcome) {}
  TrialOutcome outcome() const { return outcome_; }

 private:
  TrialOutcome outcome_;
};

/// What a sample of launches gave.
struct Sample {
  double us = 0;     // of all launches
  double score = 0;  // of one: its microseconds, or as the workload's objective says
};

/// What a sample is to be taken of.
struct Timing {
  Candidate candidate;
  int repeats = 1;
};

/// A sample, or why there is none.
struct Timed {
  Sample sample;
  std::optional<CandidateFailure> failure = std::nullopt;
};

/// The problem that candidates run on. What it points to outlives the runner.
struct Workload {
  const OpInfo* op = nullptr;
  ProblemRef problem;
  const Device* device = nullptr;
  std::uint64_t seed = 1;                    // of the inputs
  const RegisteredKernel* oracle = nullptr;  // says what is right; null: the default does
  const ErasedKernel* default_kernel = nullptr;
  const Objective* objective = nullptr;  // null: the time
};

class CandidateRunner {
 public:
  virtual ~CandidateRunner() = default;

  /// Makes what launches of these candidates need, several at once on the cores of this machine,
  /// until `budget` is over. A verdict each: ok, kFailed with the reason, or kNotReached; none at
  /// all where the runner cannot tell, and candidates are prepared as they come.
  virtual std::vector<Verdict> prepare(std::span<const Candidate> /*candidates*/,
                                       std::chrono::milliseconds /*budget*/) {
    return {};
  }

  /// Whether the candidate is right on the op's reduced problem. Each `round` 0, 1, ... has other
  /// inputs. Nothing when the config does not fit the reduced problem.
  virtual std::optional<Verdict> check_reduced(const Candidate& candidate, int round) = 0;

  /// Whether its outputs on the problem itself are finite and the same in two runs; with `like`,
  /// also whether they are what that candidate gives, within the tolerance of both.
  virtual Verdict check_at_full_size(const Candidate& candidate, const Candidate* like) = 0;

  /// Microseconds of `repeats` launches back to back. Throws CandidateFailure.
  virtual double time_us(const Candidate& candidate, int repeats) = 0;

  /// The same with the score of a launch. Throws CandidateFailure, and ExecutionError when the
  /// objective cannot be measured.
  virtual Sample sample(const Candidate& candidate, int repeats) {
    const double us = time_us(candidate, repeats);
    return {us, us / repeats};
  }

  /// Samples of some of these, one behind the other: of the first at least, and of none behind one
  /// that fails. A runner in another process hears of all at once, and need not wait between two.
  /// Throws ExecutionError as sample() does.
  virtual std::vector<Timed> sample_each(std::span<const Timing> timings) {
    std::vector<Timed> all;
    for (const Timing& timing : timings) {
      try {
        all.push_back({sample(timing.candidate, timing.repeats)});
      } catch (const CandidateFailure& failure) {
        all.push_back({.sample = {}, .failure = failure});
        break;
      }
    }
    return all;
  }

  /// Why nothing more can run here (the device is lost), or "". Asked after a candidate was wrong
  /// or failed.
  virtual std::string device_failure() = 0;
};

/// A runner in this process. Throws what making the problem's tensors throws, and ExecutionError
/// when the device has failed before.
std::unique_ptr<CandidateRunner> make_local_runner(const Workload& workload);

}  // namespace attune::tuning
