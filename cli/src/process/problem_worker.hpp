// The process in which candidates of one problem run.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include <attune/tuner/candidate_runner.hpp>

#include "process/isolated_runner.hpp"

namespace attune::cli {

/// A worker that has the problem's tensors: an idle one of the device's, or a fresh one. Where a
/// candidate has ended it, the next request starts another.
class ProblemWorker {
 public:
  using Clock = LineReader::Clock;

  /// What the workload points to outlives this. Throws ExecutionError when no worker can be started,
  /// or it cannot make the problem's tensors.
  ProblemWorker(const tuning::Workload& workload, IsolationSettings settings);

  void send(const nlohmann::json& request);
  /// Requests whose answers are still to come.
  int unanswered() const { return unanswered_; }
  /// The next answer. Where none comes in time the worker is ended, and CandidateFailure says how it
  /// ended. Throws ExecutionError when what was asked could not be done.
  nlohmann::json receive(Clock::duration limit);

  /// Ends it, whatever it does.
  void end();
  /// Leaves it to the device's next problem, where such are kept.
  void leave();

 private:
  std::string device() const { return str(workload_.device->info().id); }
  bool is_on_host() const;
  bool may_be_kept() const { return settings_.idle != nullptr && !is_on_host(); }
  void launch();
  void open();
  bool go_on_with_another();
  void start();
  nlohmann::json wait_for_line(Clock::duration limit);
  tuning::CandidateFailure how_it_ended();

  const tuning::Workload workload_;
  const IsolationSettings settings_;
  std::unique_ptr<ChildProcess> process_;
  int unanswered_ = 0;
};

}  // namespace attune::cli
