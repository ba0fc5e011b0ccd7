#include "measuring/preparation.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include <attune/cache/artifact_cache.hpp>
#include <attune/core/prepared_kernel.hpp>

#include "measuring/correctness.hpp"

namespace attune::tuning {
namespace {

using Clock = std::chrono::steady_clock;

Verdict prepare_one(const Candidate& candidate, ProblemRef problem, const Device& device) {
  try {
    candidate.kernel->erased_prepare(problem, candidate.config, {device, default_artifact_cache()});
    return {};
  } catch (...) {
    return {TrialOutcome::kFailed, str("cannot be prepared: ", describe_current_exception()), 0};
  }
}

}  // namespace

std::vector<Verdict> prepare_candidates(std::span<const Candidate> candidates, ProblemRef problem,
                                        const Device& device, std::chrono::milliseconds budget) {
  const auto deadline = Clock::now() + budget;
  std::vector<Verdict> verdicts(
      candidates.size(),
      {TrialOutcome::kNotReached, "the time for preparing ended before its turn", 0});
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < candidates.size() && Clock::now() < deadline; i = next++) {
      verdicts[i] = prepare_one(candidates[i], problem, device);
    }
  };
  const auto cores = static_cast<std::size_t>(std::max(cpu_device().info().cores, 1));
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < std::min(cores, candidates.size()); ++i) threads.emplace_back(work);
  work();
  threads.clear();
  return verdicts;
}

}  // namespace attune::tuning
