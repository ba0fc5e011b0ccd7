// `attune worker`: runs candidates for an `attune tune` that started it. Not for people.
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/framework.hpp>

#include "process/lines.hpp"
#include "process/worker_protocol.hpp"
#include "process/worker_surroundings.hpp"
#include "program/verb.hpp"

namespace attune::cli {
namespace {

using nlohmann::json;

/// Answers requests for one problem at a time, that of the last open().
class Worker {
 public:
  explicit Worker(const Registry& registry) : registry_(registry) {}

  json answer(const json& request);

 private:
  void open(const json& request);
  json prepare(const json& request);
  json check(const json& request);
  json check_full(const json& request);
  json time(const json& request);
  json with_candidate(const json& request, json (Worker::*run)(const json&));
  Candidate candidate(const json& request) const { return candidate_from(request, registry_); }
  const RegisteredKernel* kernel_named(const json& name) const;
  const Device& device_named(const std::string& name) const;

  const Registry& registry_;
  AnyProblem problem_;
  std::shared_ptr<const Objective> objective_;
  std::unique_ptr<tuning::CandidateRunner> runner_;
  std::set<std::string> warm_;
  Surroundings surroundings_;
};

json Worker::answer(const json& request) {
  const auto what = request.at("do").get<std::string>();
  if (what == "open") {
    open(request);
    return json::object();
  }
  if (runner_ == nullptr) throw InvalidArgument("no problem is open");
  if (what == "prepare") return prepare(request);
  if (what == "check") return with_candidate(request, &Worker::check);
  if (what == "check_full") return with_candidate(request, &Worker::check_full);
  if (what == "time") return with_candidate(request, &Worker::time);
  throw InvalidArgument(str("no request '", what, "'"));
}

void Worker::open(const json& request) {
  runner_.reset();  // of the problem before: its memory first
  warm_.clear();
  surroundings_ = {};
  const OpInfo& op = registry_.op(request.at("op").get<std::string>());
  problem_ = op.parse(parse_params(request.at("problem").get<std::string>(), ' '));
  tuning::Workload workload;
  workload.op = &op;
  workload.problem = problem_;
  workload.device = &device_named(request.at("device").get<std::string>());
  workload.seed = request.at("seed").get<std::uint64_t>();
  workload.oracle = kernel_named(request.at("oracle"));
  workload.default_kernel = kernel_named(request.at("default"))->kernel.get();
  objective_ = find_objective(request.at("objective").get<std::string>());
  workload.objective = objective_.get();
  runner_ = tuning::make_local_runner(workload);
  if (const auto memory = request.at("memory").get<std::int64_t>(); memory > 0) {
    limit_memory(memory);
  }
}

const RegisteredKernel* Worker::kernel_named(const json& name) const {
  if (name.is_null()) return nullptr;
  const RegisteredKernel* found = registry_.find_kernel(name.get<std::string>());
  if (found == nullptr) throw Unavailable(str("no kernel ", name));
  return found;
}

const Device& Worker::device_named(const std::string& name) const {
  for (const Device* device : registry_.devices()) {
    if (str(device->info().id) == name) return *device;
  }
  throw Unavailable(str("no device ", name));
}

json Worker::with_candidate(const json& request, json (Worker::*run)(const json&)) {
  surroundings_.before();
  json reply = (this->*run)(request);
  const bool right = !reply.contains("verdict") || reply["verdict"]["outcome"] == "ok";
  const std::string name = to_line(to_json(candidate(request)));
  if (const std::string reason = surroundings_.after(name, request.value("repeats", 2));
      !reason.empty() && right) {
    return {{"verdict", to_json(tuning::Verdict{TrialOutcome::kWrong, reason, 0})},
            {"over", reason}};
  }
  if (!right) {
    const std::string lost = runner_->device_failure();
    if (!lost.empty()) reply["over"] = str("left the device unusable: ", lost);
  }
  return reply;
}

json Worker::prepare(const json& request) {
  std::vector<Candidate> candidates;
  for (const json& named : request.at("candidates")) {
    candidates.push_back(candidate_from(named, registry_));
  }
  const std::chrono::milliseconds budget(request.at("budget_ms").get<std::int64_t>());
  json verdicts = json::array();
  for (const tuning::Verdict& verdict : runner_->prepare(candidates, budget)) {
    verdicts.push_back(to_json(verdict));
  }
  return {{"verdicts", verdicts}};
}

json Worker::check(const json& request) {
  const std::optional<tuning::Verdict> verdict =
      runner_->check_reduced(candidate(request), request.at("round").get<int>());
  return verdict ? json{{"verdict", to_json(*verdict)}} : json{{"fits", false}};
}

json Worker::check_full(const json& request) {
  const json& like = request.at("like");
  const std::optional<Candidate> model =
      like.is_null() ? std::nullopt : std::optional(candidate_from(like, registry_));
  return {{"verdict",
           to_json(runner_->check_at_full_size(candidate(request), model ? &*model : nullptr))}};
}

json Worker::time(const json& request) {
  const Candidate timed = candidate(request);
  try {
    // Another worker may have run it before, and the tuner counts on it being warm.
    if (warm_.insert(to_line(to_json(timed))).second) runner_->time_us(timed, 1);
    const tuning::Sample sample = runner_->sample(timed, request.at("repeats").get<int>());
    return {{"us", sample.us}, {"score", sample.score}};
  } catch (const tuning::CandidateFailure& failure) {
    return {{"verdict", to_json(tuning::Verdict{failure.outcome(), failure.what(), 0})}};
  }
}

ExitCode run(const Invocation& call) {
  const WorkerEnds ends = settle_in();
  std::mutex replying;  // log lines come from any thread
  const auto reply = [&](const json& message) {
    const std::lock_guard lock(replying);
    return write_line(ends.replies.number(), to_line(message));
  };
  set_log_sink([&](LogLevel level, std::string_view message) {
    reply({{"log", message}, {"level", static_cast<int>(level)}});
  });
  // What the environment asks of programs is the parent's, and no business of a candidate's process.
  ContextOptions options{.plugins = call.options.texts("plugin"),
                         .policy = Policy::kHeuristic,
                         .database = "",
                         .read_only = true,
                         .record = "",
                         .events = "",
                         .stats = "",
                         .reload_every = std::chrono::milliseconds(0)};
  if (const auto threads = call.options.integer("threads", 1, std::numeric_limits<int>::max())) {
    options.max_threads = static_cast<int>(*threads);
  }
  if (call.register_ops != nullptr) options.register_kernels = {call.register_ops};
  const std::unique_ptr<Context> context = make_framework_context(options);
  Worker worker(context->registry());
  LineReader commands(ends.commands.number());
  const auto for_ever = LineReader::Clock::now() + std::chrono::hours(24 * 365);
  std::string line;
  while (commands.read(line, for_ever, [] { return false; }) == LineReader::Result::kLine) {
    json answer;
    try {
      answer = worker.answer(from_line(line));
    } catch (const std::bad_alloc&) {
      answer = {{"error", "out of memory"}};
    } catch (const std::exception& error) {
      answer = {{"error", error.what()}};
    }
    if (reply(answer)) continue;
    if (errno == EBADF) break;  // the candidate has closed it
    throw ExecutionError(str(kCannotAnswer, ": ", std::strerror(errno)));
  }
  set_log_sink({});
  return ExitCode::kOk;
}

}  // namespace

Verb worker_verb() {
  return {.name = "worker",
          .summary = "run candidates for the attune that started this",
          .usage = {"worker"},
          .examples = {},
          .details = "",
          .options = {},
          .run = run};
}

}  // namespace attune::cli
