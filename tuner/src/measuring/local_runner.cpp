#include <algorithm>
#include <exception>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include <attune/core/error.hpp>
#include <attune/tuner/candidate_runner.hpp>
#include <attune/tuner/objective.hpp>

#include "measuring/correctness.hpp"
#include "measuring/harness.hpp"
#include "measuring/preparation.hpp"

namespace attune::tuning {
namespace {

class LocalRunner final : public CandidateRunner {
 public:
  explicit LocalRunner(const Workload& workload)
      : workload_(workload),
        harness_(*workload.op, workload.problem, idle(*workload.device), workload.seed,
                 copies_to_rotate(*workload.op, workload.problem, *workload.device)) {
    oracle_of(0);
  }

  std::vector<Verdict> prepare(std::span<const Candidate> candidates,
                               std::chrono::milliseconds budget) override {
    return prepare_candidates(candidates, harness_.problem(), *workload_.device, budget);
  }

  std::optional<Verdict> check_reduced(const Candidate& candidate, int round) override {
    return oracle_of(round).check(candidate);
  }

  Verdict check_at_full_size(const Candidate& candidate, const Candidate* like) override {
    return check_on(harness_, candidate, like == nullptr ? TensorMap() : outputs_of(*like),
                    Check::kFullSize);
  }

  double time_us(const Candidate& candidate, int repeats) override {
    double us = 0;
    try {
      us = harness_.time_us(candidate, repeats);
    } catch (...) {
      throw CandidateFailure(TrialOutcome::kFailed, describe_current_exception());
    }
    if (us <= 0 && has_outputs()) {
      throw CandidateFailure(TrialOutcome::kWrong, "puts nothing on the stream that it is given");
    }
    return us;
  }

  Sample sample(const Candidate& candidate, int repeats) override {
    if (workload_.objective == nullptr) return CandidateRunner::sample(candidate, repeats);
    const Objective& objective = *workload_.objective;
    double us = 0;
    const auto run = [&] { return us = time_us(candidate, repeats); };
    double score = 0;
    try {
      score = objective.score({candidate, harness_.problem(), *workload_.device, repeats, run});
    } catch (const CandidateFailure&) {
      throw;
    } catch (...) {
      throw ExecutionError(str("objective ", objective.name(), ": ", describe_current_exception()));
    }
    if (!(score >= 0 && score <= Objective::kMostScore)) {
      throw ExecutionError(str("objective ", objective.name(), ": the score of a launch is ", score,
                               ' ', objective.unit(), ", expected 0 to ", Objective::kMostScore));
    }
    return {us, score};
  }

  std::string device_failure() override {
    try {
      workload_.device->synchronize(nullptr);
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }

 private:
  bool has_outputs() const {
    const std::vector<NamedTensor> outputs = harness_.first().outputs();
    return std::any_of(outputs.begin(), outputs.end(),
                       [](const NamedTensor& output) { return !output.view.empty(); });
  }

  /// `device`, after waiting for it: throws now if it has failed before any of these candidates
  /// ran.
  static const Device& idle(const Device& device) {
    device.synchronize(nullptr);
    return device;
  }

  Oracle& oracle_of(int round) {
    const auto found = oracles_.find(round);
    if (found != oracles_.end()) return found->second;
    const std::uint64_t seed = workload_.seed + static_cast<std::uint64_t>(round);
    return oracles_
        .try_emplace(round, *workload_.op, workload_.problem, *workload_.device, seed,
                     workload_.oracle, workload_.default_kernel)
        .first->second;
  }

  TensorMap outputs_of(const Candidate& candidate) {
    harness_.reset(std::byte{0});
    harness_.run(candidate);
    return copy_outputs(harness_.first(), harness_.device());
  }

  const Workload workload_;
  Harness harness_;
  std::map<int, Oracle> oracles_;
};

}  // namespace

std::unique_ptr<CandidateRunner> make_local_runner(const Workload& workload) {
  return std::make_unique<LocalRunner>(workload);
}

}  // namespace attune::tuning
