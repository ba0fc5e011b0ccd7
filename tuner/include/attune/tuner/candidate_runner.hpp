// Where candidates run: the seam between the tuner, which decides, and the place that checks and
// times.
//
// The tuner asks for one thing at a time and keeps all that it learns, so a place may come to harm:
// `attune tune` runs candidates in another process, which a candidate may crash, hang or leave with
// a device that is lost, and goes on with a fresh one. Without it, they run in this process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <attune/core/device.hpp>
#include <attune/core/error.hpp>
#include <attune/core/op.hpp>
#include <attune/core/registry.hpp>
#include <attune/tuner/tuner.hpp>

namespace attune::tuning {

/// What the reason of a candidate says that failed for want of memory, which may be another's fault.
inline constexpr std::string_view kOutOfMemory = "out of memory";

/// What running a candidate to see whether it is right came to.
struct Verdict {
  TrialOutcome outcome = TrialOutcome::kOk;  // or kWrong, kFailed, kCrashed, with a reason
  std::string reason;
  double error = 0;  // worst relative RMS error of an output
  bool ok() const { return outcome == TrialOutcome::kOk; }
};

/// A candidate that could not be timed: it threw (kFailed), or ended the place it ran in
/// (kCrashed).
class CandidateFailure : public Error {
 public:
  CandidateFailure(TrialOutcome outcome, const std::string& reason)
      : Error(reason), outcome_(outcome) {}
  TrialOutcome outcome() const { return outcome_; }

 private:
  TrialOutcome outcome_;
};

/// A problem to run candidates on. What it points to outlives the runner.
struct Workload {
  const OpInfo* op = nullptr;
  ProblemRef problem;
  const Device* device = nullptr;
  std::uint64_t seed = 1;                    // of the inputs
  const RegisteredKernel* oracle = nullptr;  // says what is right; null: `standard` does
  const ErasedKernel* standard = nullptr;    // the default's kernel
};

class CandidateRunner {
 public:
  virtual ~CandidateRunner() = default;

  /// Whether the candidate is right on the op's reduced problem. `round` 0, 1, ... are other
  /// inputs. Nothing when its config does not fit there.
  virtual std::optional<Verdict> check_reduced(const Candidate& candidate, int round) = 0;

  /// Whether its outputs are finite and the same twice on the problem itself, and, with `like`,
  /// what that candidate gives.
  virtual Verdict check_at_full_size(const Candidate& candidate, const Candidate* like) = 0;

  /// Microseconds of `repeats` launches back to back. Throws CandidateFailure.
  virtual double time_us(const Candidate& candidate, int repeats) = 0;

  /// Why nothing more can run here, or "". Asked after a candidate was wrong or failed.
  virtual std::string device_failure() = 0;
};

/// In this process. Throws what making the problem's tensors throws, and ExecutionError when the
/// device has failed before.
std::unique_ptr<CandidateRunner> make_local_runner(const Workload& workload);

}  // namespace attune::tuning
