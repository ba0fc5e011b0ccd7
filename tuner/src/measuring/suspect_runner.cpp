#include "measuring/suspect_runner.hpp"

#include <string>
#include <utility>

namespace attune::tuning {
namespace {

class SuspectRunner final : public CandidateRunner {
 public:
  SuspectRunner(std::unique_ptr<CandidateRunner> runner, const Workload& workload,
                std::unique_ptr<SuspectNote> note, NamesCandidate name)
      : runner_(std::move(runner)),
        note_(std::move(note)),
        name_(std::move(name)),
        default_(
            describe({workload.default_kernel, workload.default_kernel->erased_heuristic(
                                                   workload.problem, workload.device->info())})) {}

  std::vector<Verdict> prepare(std::span<const Candidate> candidates,
                               std::chrono::milliseconds budget) override {
    return runner_->prepare(candidates, budget);
  }

  std::optional<Verdict> check_reduced(const Candidate& candidate, int round) override {
    if (round == 0 && describe(candidate) != default_) {
      note_->runs(name_(candidate));
      noted_ = true;
    }
    return cleared_if_bad(runner_->check_reduced(candidate, round));
  }

  Verdict check_at_full_size(const Candidate& candidate, const Candidate* like) override {
    return *cleared_if_bad(runner_->check_at_full_size(candidate, like));
  }

  double time_us(const Candidate& candidate, int repeats) override {
    return sample(candidate, repeats).us;
  }

  Sample sample(const Candidate& candidate, int repeats) override {
    try {
      const Sample taken = runner_->sample(candidate, repeats);
      clear();
      return taken;
    } catch (const CandidateFailure&) {
      clear();  // it came back
      throw;
    }
  }

  std::vector<Timed> sample_each(std::span<const Timing> timings) override {
    std::vector<Timed> all = runner_->sample_each(timings);
    clear();
    return all;
  }

  std::string device_failure() override { return runner_->device_failure(); }

 private:
  void clear() {
    if (noted_) note_->clear();
    noted_ = false;
  }

  static std::string describe(const Candidate& candidate) {
    return str(candidate.kernel->name(), ' ', config_text(*candidate.kernel, candidate.config));
  }

  std::optional<Verdict> cleared_if_bad(std::optional<Verdict> verdict) {
    if (verdict && !verdict->ok()) clear();
    return verdict;
  }

  std::unique_ptr<CandidateRunner> runner_;
  std::unique_ptr<SuspectNote> note_;
  NamesCandidate name_;
  std::string default_;
  bool noted_ = false;
};

}  // namespace

std::unique_ptr<CandidateRunner> make_suspect_runner(std::unique_ptr<CandidateRunner> runner,
                                                     const Workload& workload,
                                                     std::unique_ptr<SuspectNote> note,
                                                     NamesCandidate name) {
  return std::make_unique<SuspectRunner>(std::move(runner), workload, std::move(note),
                                         std::move(name));
}

}  // namespace attune::tuning
