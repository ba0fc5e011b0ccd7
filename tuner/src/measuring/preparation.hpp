// Candidates of kernels that prepare (core/prepared_kernel.hpp), made ready before they are timed.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include <attune/tuner/candidate_runner.hpp>

namespace attune::tuning {

/// As CandidateRunner::prepare(): on as many threads as the machine has cores. None is begun once
/// the budget is over, and those that were begun are waited for.
std::vector<Verdict> prepare_candidates(std::span<const Candidate> candidates, ProblemRef problem,
                                        const Device& device, std::chrono::milliseconds budget);

}  // namespace attune::tuning
