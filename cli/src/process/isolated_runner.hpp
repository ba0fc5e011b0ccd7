// Candidates in a process of their own.
//
// A worker is this program once more (`attune worker`). A candidate that crashes it, ends it, does
// not come back, or leaves its device lost is told of as TrialOutcome::kCrashed with the reason,
// and the next request starts a fresh one. One that throws is tried once more in a fresh process,
// so that it does not answer for what others did to the process before. A worker whose candidates
// were all right goes on to the next problem of its device.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <attune/tuner/candidate_runner.hpp>

#include "process/child_process.hpp"

namespace attune::cli {

/// Workers between two problems, by device. One that has met nothing but right candidates is as good
/// as a fresh one, which takes half a second to start where there is a GPU, and longer beside others
/// that start. Of the host none is kept: there a worker's memory is bounded from its start.
///
/// A worker ends with the thread that started it, so one thread has a device for itself.
class IdleWorkers {
 public:
  /// One that waits for a problem of the device, or null.
  std::unique_ptr<ChildProcess> take(const std::string& device) {
    const std::lock_guard lock(mutex_);
    return std::exchange(workers_[device], nullptr);
  }
  void put(const std::string& device, std::unique_ptr<ChildProcess> worker) {
    const std::lock_guard lock(mutex_);
    workers_[device] = std::move(worker);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<ChildProcess>> workers_;
};

struct IsolationSettings {
  std::vector<std::string> plugins;
  /// A candidate is killed when it takes longer than this and than fifty times what the default
  /// took for the same; a second more for each 10 MB where its outputs are compared with the default's.
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
