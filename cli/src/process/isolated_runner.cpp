#include "process/isolated_runner.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <attune/core/error.hpp>

#include "process/problem_worker.hpp"
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

constexpr std::chrono::seconds kUnmeasured{60};  // while nothing is known of the default's time
constexpr double kTimesTheDefault = 50;
constexpr double kComparedPerSecond = 1e7;  // bytes: a twentieth of what the host manages

/// Outputs of the whole problem are compared on the host. The default's are not: a device looks at
/// them by itself, so that its time says nothing of this.
Seconds allowed_for_comparing(const tuning::Workload& workload) {
  return Seconds(workload.op->bytes(workload.problem) / kComparedPerSecond);
}

class IsolatedRunner final : public tuning::CandidateRunner {
 public:
  IsolatedRunner(const tuning::Workload& workload, const IsolationSettings& settings)
      : timeout_(settings.timeout),
        comparing_(allowed_for_comparing(workload)),
        worker_(workload, settings) {}
  ~IsolatedRunner() override {
    if (all_right_) worker_.leave();
  }
  IsolatedRunner(const IsolatedRunner&) = delete;
  IsolatedRunner& operator=(const IsolatedRunner&) = delete;

  /// Where that ends the worker, candidates are prepared as they come, each at its own risk.
  std::vector<Verdict> prepare(std::span<const Candidate> candidates,
                               std::chrono::milliseconds budget) override {
    json request{{"do", "prepare"}, {"budget_ms", budget.count()}, {"candidates", json::array()}};
    for (const Candidate& candidate : candidates)
      request["candidates"].push_back(to_json(candidate));
    worker_.send(request);
    try {
      const json reply = worker_.receive(budget + kUnmeasured);
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
      worker_.send(requests.back());
    }
    std::vector<Timed> all;
    while (worker_.unanswered() > 0 && (all.empty() || !all.back().failure)) {
      all.push_back(timed(requests[all.size()], timings[all.size()].repeats));
    }
    if (worker_.unanswered() > 0) worker_.end();  // what it still does is of no use
    return all;
  }

  std::string device_failure() override { return ""; }  // a lost device ends its worker

 private:
  std::optional<Verdict> check(const json& request);
  Timed timed(const json& request, int launches);
  json answer_to(const json& request, int launches);
  json answer_to_or_again(const json& request, int launches);
  Clock::duration limit_for(const json& request, int launches) const;

  const std::chrono::milliseconds timeout_;
  const Seconds comparing_;  // that a candidate may take longer whose outputs are compared
  ProblemWorker worker_;
  bool all_right_ = true;                        // what its candidates have been
  std::map<std::string, double> known_seconds_;  // what each kind of request took first, a launch
};

bool is(const json& reply, TrialOutcome outcome) {
  return reply.contains("verdict") && reply["verdict"]["outcome"] == to_string(outcome);
}
bool is_failed(const json& reply) { return is(reply, TrialOutcome::kFailed); }

std::optional<Verdict> IsolatedRunner::check(const json& request) {
  try {
    worker_.send(request);
    const json reply = answer_to_or_again(request, 1);
    if (!reply.contains("verdict")) return std::nullopt;
    return verdict_from(reply["verdict"]);
  } catch (const CandidateFailure& failure) {
    return Verdict{failure.outcome(), failure.what(), 0};
  }
}

Clock::duration IsolatedRunner::limit_for(const json& request, int launches) const {
  const auto known = known_seconds_.find(request.at("do").get<std::string>());
  if (known == known_seconds_.end()) return std::max<Clock::duration>(timeout_, kUnmeasured);
  Seconds limit(kTimesTheDefault * known->second * launches);
  limit = std::max<Seconds>(limit, timeout_);
  if (!request.value("like", json()).is_null()) limit += comparing_;
  return std::chrono::duration_cast<Clock::duration>(limit);
}

json IsolatedRunner::answer_to(const json& request, int launches) {
  const auto begin = Clock::now();
  json reply = worker_.receive(limit_for(request, launches));
  if (reply.contains("verdict") && !is(reply, TrialOutcome::kOk)) all_right_ = false;
  if (const auto over = reply.find("over"); over != reply.end()) {
    worker_.end();
    if (is_failed(reply)) {
      throw CandidateFailure(TrialOutcome::kCrashed, over->get<std::string>());
    }
  }
  if (!is_failed(reply)) {
    known_seconds_.try_emplace(request.at("do").get<std::string>(),
                               Seconds(Clock::now() - begin).count() / launches);
  }
  return reply;
}

/// What fails is asked once more of a fresh worker, which does not answer what the last was sent
/// besides.
json IsolatedRunner::answer_to_or_again(const json& request, int launches) {
  try {
    json first = answer_to(request, launches);
    if (!is_failed(first)) return first;
    worker_.end();
  } catch (const CandidateFailure& failure) {
    if (failure.outcome() != TrialOutcome::kFailed) throw;
  }
  worker_.send(request);
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

std::int64_t default_worker_memory() { return cpu_device().info().memory_bytes / 2; }

std::unique_ptr<tuning::CandidateRunner> make_isolated_runner(const tuning::Workload& workload,
                                                              const IsolationSettings& settings) {
  return std::make_unique<IsolatedRunner>(workload, settings);
}

}  // namespace attune::cli
