// Candidates in a process of their own.
//
// A worker is this program once more (`attune worker`). A candidate that crashes it, ends it, does
// not come back, or leaves its device lost is told of as TrialOutcome::kCrashed with the reason,
// and the next request starts a fresh one. One that throws is tried once more in a fresh process,
// so that it does not answer for what others did to the process before. A worker whose candidates
// were all right goes on to the next problem of its device.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <attune/tuner/candidate_runner.hpp>

#include "process/idle_workers.hpp"

namespace attune::cli {

struct IsolationSettings {
  std::vector<std::string> plugins;
  /// A candidate is killed when it takes longer than this and than fifty times what the default
  /// took for the same.
  std::chrono::milliseconds timeout{2000};
  /// Bytes that a worker on the host may use besides what the problem takes; 0: no limit.
  std::int64_t memory = 0;
  std::function<bool()> stop = [] { return false; };
  /// Of an accelerator, from one problem to the next; null: every problem gets a fresh one.
  std::shared_ptr<IdleWorkers> idle;
};

/// Half of this machine's memory, as its devices tell it.
std::int64_t default_worker_memory();

/// A runner in a worker of its own. Throws ExecutionError when no worker can be started, or it
/// cannot make the problem's tensors.
std::unique_ptr<tuning::CandidateRunner> make_isolated_runner(const tuning::Workload& workload,
                                                              const IsolationSettings& settings);

}  // namespace attune::cli
