#include "process/isolated_runner.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/core/parallel_for.hpp>
#include <attune/tuner/objective.hpp>

#include "output/text.hpp"
#include "process/child_process.hpp"
#include "process/worker_protocol.hpp"

namespace attune::cli {
namespace {

using nlohmann::json;
using tuning::CandidateFailure;
using tuning::Sample;
using tuning::Timed;
using tuning::Timing;
using tuning::Verdict;
using Clock = LineReader::Clock;
using Seconds = std::chrono::duration<double>;

constexpr std::chrono::minutes kToOpen{10};      // to make the tensors of a problem
constexpr std::chrono::seconds kUnmeasured{60};  // while nothing is known of the default's time
constexpr double kTimesTheDefault = 50;

void check_error(const json& reply) {
  const auto error = reply.find("error");
  if (error != reply.end()) throw ExecutionError(str("worker: ", error->get<std::string>()));
}

class IsolatedRunner final : public tuning::CandidateRunner {
 public:
  IsolatedRunner(const tuning::Workload& workload, IsolationSettings settings)
      : workload_(workload), settings_(std::move(settings)) {
    if (go_on_with_another()) return;
    start();
  }
  ~IsolatedRunner() override {
    if (worker_ != nullptr && all_right_ && may_be_kept()) {
      settings_.idle->put(device(), std::move(worker_));
    }
  }
  IsolatedRunner(const IsolatedRunner&) = delete;
  IsolatedRunner& operator=(const IsolatedRunner&) = delete;

  /// Where that ends the worker, candidates are prepared as they come, each at its own risk.
  std::vector<Verdict> prepare(std::span<const Candidate> candidates,
                               std::chrono::milliseconds budget) override {
    json request{{"do", "prepare"}, {"budget_ms", budget.count()}, {"candidates", json::array()}};
    for (const Candidate& candidate : candidates)
      request["candidates"].push_back(to_json(candidate));
    send(request);
    try {
      const json reply = receive_or_end(budget + kUnmeasured);
      check_error(reply);
      std::vector<Verdict> verdicts;
      for (const json& verdict : reply.at("verdicts")) verdicts.push_back(verdict_from(verdict));
      return verdicts;
    } catch (const CandidateFailure&) {
      return {};
    }
  }

  std::optional<Verdict> check_reduced(const Candidate& candidate, int round) override {
    json request = to_json(candidate);
    request["do"] = "check";
    request["round"] = round;
    return check(request);
  }

  Verdict check_at_full_size(const Candidate& candidate, const Candidate* like) override {
    json request = to_json(candidate);
    request["do"] = "check_full";
    request["like"] = like == nullptr ? json() : to_json(*like);
    return check(request).value();
  }

  double time_us(const Candidate& candidate, int repeats) override {
    return sample(candidate, repeats).us;
  }

  Sample sample(const Candidate& candidate, int repeats) override {
    const Timing timing{candidate, repeats};
    const Timed timed = std::move(sample_each({&timing, 1}).front());
    if (timed.failure) throw CandidateFailure(*timed.failure);
    return timed.sample;
  }

  /// All are sent before the first answer comes: else the device would wait, between two samples,
  /// until two processes have woken up.
  std::vector<Timed> sample_each(std::span<const Timing> timings) override {
    std::vector<json> requests;
    for (const Timing& timing : timings) {
      requests.push_back(to_json(timing.candidate));
      requests.back()["do"] = "time";
      requests.back()["repeats"] = timing.repeats;
      send(requests.back());
    }
    std::vector<Timed> all;
    while (unanswered_ > 0 && (all.empty() || !all.back().failure)) {
      all.push_back(timed(requests[all.size()], timings[all.size()].repeats));
    }
    if (unanswered_ > 0) end_worker();  // what it still does is of no use
    return all;
  }

  std::string device_failure() override { return ""; }  // a lost device ends its worker

 private:
  std::string device() const { return str(workload_.device->info().id); }
  bool is_on_host() const {
    return workload_.device->info().id.backend == cpu_device().info().id.backend;
  }
  bool may_be_kept() const { return settings_.idle != nullptr && !is_on_host(); }
  void open();
  bool go_on_with_another();
  void start();
  void end_worker();
  std::optional<Verdict> check(const json& request);
  Timed timed(const json& request, int launches);
  void send(const json& request);
  json answer_to(const json& request, int launches);
  json answer_to_or_again(const json& request, int launches);
  json receive(Clock::duration limit);
  json receive_or_end(Clock::duration limit);
  CandidateFailure ended();
  Clock::duration limit_for(const std::string& what, int launches) const;

  const tuning::Workload workload_;
  const IsolationSettings settings_;
  std::unique_ptr<ChildProcess> worker_;
  int unanswered_ = 0;                           // requests that it has been sent
  bool all_right_ = true;                        // what its candidates have been
  std::map<std::string, double> known_seconds_;  // what each kind of request took first, a launch
};

/// A message that a worker sends: `line` itself, or null when it was for the log.
json take_message(const std::string& line) {
  json message = from_line(line);
  if (!message.contains("log")) return message;
  log(static_cast<LogLevel>(message.value("level", 0)), message["log"].get<std::string>());
  return nullptr;
}

bool is(const json& reply, TrialOutcome outcome) {
  return reply.contains("verdict") && reply["verdict"]["outcome"] == to_string(outcome);
}
bool is_failed(const json& reply) { return is(reply, TrialOutcome::kFailed); }

void IsolatedRunner::open() {
  worker_->send(to_line({
      {"do", "open"},
      {"op", workload_.op->kernel_op},
      {"problem", workload_.op->text(workload_.problem, false)},
      {"device", device()},
      {"seed", workload_.seed},
      {"oracle", workload_.oracle == nullptr ? json() : json(workload_.oracle->kernel->name())},
      {"default", workload_.default_kernel->name()},
      {"objective", workload_.objective == nullptr ? "time" : workload_.objective->name()},
      {"memory", is_on_host() ? settings_.memory : 0},
      {"host_threads", is_on_host() ? 0 : settings_.host_threads},
  }));
  unanswered_ = 1;
  check_error(receive_or_end(kToOpen));
}

void IsolatedRunner::end_worker() {
  worker_.reset();
  unanswered_ = 0;
}

/// The worker of the device's last problem, if it is there and takes this one. Whether it does.
bool IsolatedRunner::go_on_with_another() {
  if (may_be_kept()) worker_ = settings_.idle->take(device());
  if (worker_ == nullptr) return false;
  try {
    open();
    return true;
  } catch (const Error&) {  // a fresh one will say what is wrong, if anything is
    end_worker();
    return false;
  }
}

/// A worker that is ready. One that is killed before it is, is replaced once.
void IsolatedRunner::start() {
  for (const bool last : {false, true}) {
    try {
      worker_ = start_worker(settings_.plugins, workload_.device->threads());
      return open();
    } catch (const CandidateFailure& failure) {
      if (failure.outcome() == TrialOutcome::kNotReached) throw;
      if (failure.outcome() == TrialOutcome::kFailed && !last) continue;
      throw ExecutionError(
          str("the worker could not make the problem's tensors: ", failure.what()));
    }
  }
}

json IsolatedRunner::receive(Clock::duration limit) {
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
    switch (worker_->receive(line, deadline, stop)) {
      case LineReader::Result::kLine:
        if (json message = take_message(line); !message.is_null()) return message;
        continue;
      case LineReader::Result::kEnd:
        throw ended();
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
CandidateFailure IsolatedRunner::ended() {
  const std::string how = worker_->end();
  if (how.find(kCannotAnswer) != std::string::npos) throw ExecutionError(str("the worker: ", how));
  return {worker_->ended_from_outside() ? TrialOutcome::kFailed : TrialOutcome::kCrashed, how};
}

json IsolatedRunner::receive_or_end(Clock::duration limit) {
  try {
    json reply = receive(limit);
    --unanswered_;
    return reply;
  } catch (const CandidateFailure&) {
    end_worker();
    throw;
  }
}

std::optional<Verdict> IsolatedRunner::check(const json& request) {
  try {
    send(request);
    const json reply = answer_to_or_again(request, 1);
    if (!reply.contains("verdict")) return std::nullopt;
    return verdict_from(reply["verdict"]);
  } catch (const CandidateFailure& failure) {
    return Verdict{failure.outcome(), failure.what(), 0};
  }
}

Clock::duration IsolatedRunner::limit_for(const std::string& what, int launches) const {
  const auto known = known_seconds_.find(what);
  if (known == known_seconds_.end())
    return std::max<Clock::duration>(settings_.timeout, kUnmeasured);
  const Seconds relative(kTimesTheDefault * known->second * launches);
  return std::max<Clock::duration>(settings_.timeout,
                                   std::chrono::duration_cast<Clock::duration>(relative));
}

void IsolatedRunner::send(const json& request) {
  if (worker_ == nullptr) start();
  worker_->send(to_line(request));  // when it has gone, receiving tells
  ++unanswered_;
}

json IsolatedRunner::answer_to(const json& request, int launches) {
  const auto what = request.at("do").get<std::string>();
  const auto begin = Clock::now();
  json reply = receive_or_end(limit_for(what, launches));
  if (reply.contains("error") && unanswered_ > 0) end_worker();  // nobody takes those answers
  check_error(reply);
  if (reply.contains("verdict") && !is(reply, TrialOutcome::kOk)) all_right_ = false;
  if (const auto over = reply.find("over"); over != reply.end()) {
    end_worker();
    if (is_failed(reply)) {
      throw CandidateFailure(TrialOutcome::kCrashed, over->get<std::string>());
    }
  }
  if (!is_failed(reply)) {
    known_seconds_.try_emplace(what, Seconds(Clock::now() - begin).count() / launches);
  }
  return reply;
}

/// What fails is asked once more of a fresh worker, which does not answer what the last was sent
/// besides.
json IsolatedRunner::answer_to_or_again(const json& request, int launches) {
  try {
    json first = answer_to(request, launches);
    if (!is_failed(first)) return first;
    end_worker();
  } catch (const CandidateFailure& failure) {
    if (failure.outcome() != TrialOutcome::kFailed) throw;
  }
  send(request);
  return answer_to(request, launches);
}

Timed IsolatedRunner::timed(const json& request, int launches) {
  try {
    const json reply = answer_to_or_again(request, launches);
    if (const auto us = reply.find("us"); us != reply.end()) {
      return {{us->get<double>(), reply.at("score").get<double>()}};
    }
    const Verdict verdict = verdict_from(reply.at("verdict"));
    return {.sample = {}, .failure = CandidateFailure(verdict.outcome, verdict.reason)};
  } catch (const CandidateFailure& failure) {
    return {.sample = {}, .failure = failure};
  }
}

}  // namespace

std::unique_ptr<ChildProcess> start_worker(const std::vector<std::string>& plugins,
                                           const HostThreads* threads) {
  std::vector<std::string> arguments{"worker"};
  for (const std::string& plugin : plugins) {
    arguments.insert(arguments.end(), {"--plugin", plugin});
  }
  if (threads != nullptr) arguments.insert(arguments.end(), {"--threads", str(threads->most)});
  return std::make_unique<ChildProcess>(arguments);
}

std::int64_t default_worker_memory() { return cpu_device().info().memory_bytes / 2; }

std::unique_ptr<tuning::CandidateRunner> make_isolated_runner(const tuning::Workload& workload,
                                                              const IsolationSettings& settings) {
  return std::make_unique<IsolatedRunner>(workload, settings);
}

}  // namespace attune::cli
