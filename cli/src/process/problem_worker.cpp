#include "process/problem_worker.hpp"

#include <optional>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/core/parallel_for.hpp>
#include <attune/tuner/objective.hpp>

#include "output/text.hpp"
#include "process/worker_protocol.hpp"

namespace attune::cli {
namespace {

using nlohmann::json;
using tuning::CandidateFailure;
using Seconds = std::chrono::duration<double>;

constexpr std::chrono::minutes kToOpen{10};  // to make the tensors of a problem

/// A message that a worker sends: `line` itself, or null when it was for the log.
json take_message(const std::string& line) {
  json message = from_line(line);
  if (!message.contains("log")) return message;
  log(static_cast<LogLevel>(message.value("level", 0)), message["log"].get<std::string>());
  return nullptr;
}

}  // namespace

ProblemWorker::ProblemWorker(const tuning::Workload& workload, IsolationSettings settings)
    : workload_(workload), settings_(std::move(settings)) {
  if (go_on_with_another()) return;
  start();
}

bool ProblemWorker::is_on_host() const {
  return workload_.device->info().id.backend == cpu_device().info().id.backend;
}

void ProblemWorker::send(const json& request) {
  if (process_ == nullptr) start();
  process_->send(to_line(request));  // when it has gone, receiving tells
  ++unanswered_;
}

json ProblemWorker::receive(Clock::duration limit) {
  json reply;
  try {
    reply = wait_for_line(limit);
  } catch (const CandidateFailure&) {
    end();
    throw;
  }
  --unanswered_;
  if (const auto error = reply.find("error"); error != reply.end()) {
    if (unanswered_ > 0) end();  // nobody takes those answers
    throw ExecutionError(str("worker: ", error->get<std::string>()));
  }
  return reply;
}

void ProblemWorker::end() {
  process_.reset();
  unanswered_ = 0;
}

void ProblemWorker::leave() {
  if (process_ != nullptr && may_be_kept()) settings_.idle->put(device(), std::move(process_));
}

void ProblemWorker::launch() {
  std::vector<std::string> arguments{"worker"};
  for (const std::string& plugin : settings_.plugins) {
    arguments.insert(arguments.end(), {"--plugin", plugin});
  }
  if (const HostThreads* threads = workload_.device->threads(); threads != nullptr) {
    arguments.insert(arguments.end(), {"--threads", str(threads->most)});
  }
  process_ = std::make_unique<ChildProcess>(arguments);
}

void ProblemWorker::open() {
  process_->send(to_line({
      {"do", "open"},
      {"op", workload_.op->kernel_op},
      {"problem", workload_.op->text(workload_.problem, false)},
      {"device", device()},
      {"seed", workload_.seed},
      {"oracle", workload_.oracle == nullptr ? json() : json(workload_.oracle->kernel->name())},
      {"default", workload_.default_kernel->name()},
      {"objective", workload_.objective == nullptr ? "time" : workload_.objective->name()},
      {"memory", is_on_host() ? settings_.memory : 0},
  }));
  unanswered_ = 1;
  receive(kToOpen);
}

/// The worker of the device's last problem, if it is there and takes this one. Whether it does.
bool ProblemWorker::go_on_with_another() {
  if (may_be_kept()) process_ = settings_.idle->take(device());
  if (process_ == nullptr) return false;
  try {
    open();
    return true;
  } catch (const Error&) {  // a fresh one will say what is wrong, if anything is
    end();
    return false;
  }
}

/// A worker that is ready. One that is killed before it is, is replaced once.
void ProblemWorker::start() {
  for (const bool last : {false, true}) {
    try {
      launch();
      return open();
    } catch (const CandidateFailure& failure) {
      if (failure.outcome() == TrialOutcome::kNotReached) throw;
      if (failure.outcome() == TrialOutcome::kFailed && !last) continue;
      throw ExecutionError(
          str("the worker could not make the problem's tensors: ", failure.what()));
    }
  }
}

json ProblemWorker::wait_for_line(Clock::duration limit) {
  // Who stops is waited for, but not for long: a candidate in the middle of a launch does not hear.
  const auto deadline = Clock::now() + limit;
  std::optional<Clock::time_point> patience;
  const auto stop = [&] {
    if (!settings_.stop()) return false;
    if (!patience) patience = Clock::now() + std::chrono::seconds(1);
    return Clock::now() >= *patience;
  };
  std::string line;
  for (;;) {
    switch (process_->receive(line, deadline, stop)) {
      case LineReader::Result::kLine:
        if (json message = take_message(line); !message.is_null()) return message;
        continue;
      case LineReader::Result::kEnd:
        throw how_it_ended();
      case LineReader::Result::kLate:
        throw CandidateFailure(
            TrialOutcome::kCrashed,
            str("no answer in ", elapsed_text(Seconds(limit).count()), "; killed"));
      case LineReader::Result::kStopped:
        throw CandidateFailure(TrialOutcome::kNotReached, "stopped");
    }
  }
}

/// How the worker ended. From outside, that is no crash of the candidate's: it is tried again.
CandidateFailure ProblemWorker::how_it_ended() {
  const std::string how = process_->end();
  if (how.find(kCannotAnswer) != std::string::npos) throw ExecutionError(str("the worker: ", how));
  return {process_->ended_from_outside() ? TrialOutcome::kFailed : TrialOutcome::kCrashed, how};
}

}  // namespace attune::cli
