// Problems by name: why each gets its choice, and how to make it a better one.
#include <chrono>
#include <optional>
#include <string>

#include <attune/attune.hpp>
#include <attune/core/params.hpp>

#include "handles.hpp"
#include "json_text.hpp"
#include "status.hpp"
#include "structs.hpp"

namespace attune::c {
namespace {

/// A problem as text, with all that a call of it would say.
class NamedProblem {
 public:
  NamedProblem(const char* op, const char* problem, attune_device device,
               const attune_call* given_call) {
    require("op", op);
    require("problem", problem);
    const attune_call call = read_call(given_call);
    context_ = &context_of(call.context);
    op_ = &context_->registry().op(op);
    problem_ = op_->parse(parse_params(problem, ' '));
    request_.device = &context_->registry().device(device_id(device));
    if (call.platform != nullptr) request_.platform = call.platform;
    if (call.config != nullptr) {
      config_ = NamedConfig::parse(call.config);
      request_.config = &*config_;
    }
    request_.stream = call.stream;
    if (call.workspace_limit > 0) request_.workspace_limit = call.workspace_limit;
    if (op_->name != op_->kernel_op) request_.called_as = op_->name;
  }
  NamedProblem(const NamedProblem&) = delete;  // the request borrows the override
  NamedProblem& operator=(const NamedProblem&) = delete;

  Context& context() const { return *context_; }
  const OpInfo& op() const { return *op_; }
  ProblemRef problem() const { return problem_; }
  const Request& request() const { return request_; }

  /// What every answer begins with.
  Json head() const {
    return {{"op", op_->name},
            {"problem", op_->text(problem_, false)},
            {"device", str(request_.device->info().id)}};
  }

 private:
  Context* context_ = nullptr;
  const OpInfo* op_ = nullptr;
  AnyProblem problem_;
  std::optional<NamedConfig> config_;
  Request request_;
};

std::string_view outcome_name(TierNote::Outcome outcome) {
  switch (outcome) {
    case TierNote::Outcome::kChosen:
      return "chosen";
    case TierNote::Outcome::kMiss:
      return "miss";
    case TierNote::Outcome::kRefused:
      return "refused";
    case TierNote::Outcome::kNotAsked:
      return "not asked";
  }
  return "?";
}

Json tiers_of(const Decision& decision) {
  Json tiers = Json::array();
  for (const TierNote& note : decision.notes) {
    tiers.push_back({{"tier", to_string(note.tier)},
                     {"outcome", outcome_name(note.outcome)},
                     {"config", text_or_null(note.config)},
                     {"reason", text_or_null(note.reason)}});
  }
  return tiers;
}

/// All kernels of the op, those that run on other devices too.
Json kernels_of(const NamedProblem& named) {
  const DeviceInfo& device = named.request().device->info();
  Json kernels = Json::array();
  for (const RegisteredKernel* kernel : named.context().registry().kernels(named.op().name)) {
    const bool runs_here =
        kernel->at.backend.view() == kAnyBackend || kernel->at.backend == device.id.backend;
    const Support support =
        runs_here ? kernel->kernel->erased_supports(named.problem(), device)
                  : Support::no(refused::kDevice,
                                str("runs on ", kernel->at.backend, ", not on ", device.id));
    kernels.push_back({{"kernel", kernel->kernel->name()},
                       {"version", kernel->kernel->version()},
                       {"platform", kernel->at.platform.view()},
                       {"backend", kernel->at.backend.view()},
                       {"supported", static_cast<bool>(support)},
                       {"reason", text_or_null(support.reason())}});
  }
  return kernels;
}

Json explanation(const NamedProblem& named) {
  const Decision decision = named.context().explain(named.problem(), named.request());
  Json json = named.head();
  const auto& choice = decision.choice;
  json["kernel"] = choice ? Json(choice->kernel->name()) : Json(nullptr);
  json["config"] = choice ? Json(config_text(*choice->kernel, choice->config)) : Json(nullptr);
  json["tier"] = choice ? Json(to_string(choice->tier)) : Json(nullptr);
  json["stale"] = choice ? Json(choice->stale) : Json(nullptr);
  json["bucket"] = choice ? Json(choice->bucket_hit) : Json(nullptr);
  json["error"] = text_or_null(decision.error);
  json["tiers"] = tiers_of(decision);
  json["kernels"] = kernels_of(named);
  return json;
}

Tuner::Settings tuner_settings(const attune_tune_options& options) {
  Tuner::Settings settings;
  const auto refuse = [](const char* name, std::int64_t value, const char* expected) {
    throw InvalidArgument(str("options: ", name, ": got ", value, ", expected ", expected));
  };
  constexpr std::int64_t kLongestMs = std::int64_t{1'000'000'000'000};
  if (options.budget_ms < 0 || options.budget_ms > kLongestMs) {
    refuse("budget_ms", options.budget_ms, "0 .. 10^12");
  }
  if (options.warmup < -1) refuse("warmup", options.warmup, "-1 or more");
  if (options.iters < 0) refuse("iters", options.iters, "0 or more");
  if (options.budget_ms > 0) settings.budget = std::chrono::milliseconds(options.budget_ms);
  if (options.warmup != 0) settings.warmup = std::max(options.warmup, 0);
  if (options.iters != 0) settings.iters = options.iters;
  if (options.stop != nullptr) {
    settings.stop = [stop = options.stop, user = options.user] { return stop(user) != 0; };
  }
  return settings;
}

Json trials_of(const TuneResult& result) {
  Json trials = Json::array();
  for (const Trial& trial : result.trials) {
    const Candidate& tried = trial.candidate;
    trials.push_back({{"kernel", tried.kernel->name()},
                      {"config", config_text(*tried.kernel, tried.config)},
                      {"outcome", to_string(trial.outcome)},
                      {"median_us", trial.median_us > 0 ? Json(trial.median_us) : Json(nullptr)},
                      {"reason", text_or_null(trial.reason)}});
  }
  return trials;
}

Json tuning(const NamedProblem& named, const attune_tune_options& options) {
  const auto report =
      chain_of(named.context()).tune(named.problem(), named.request(), tuner_settings(options));
  Json json = named.head();
  json["kernel"] = report.choice.kernel->name();
  json["config"] = config_text(*report.choice.kernel, report.choice.config);
  json["median_us"] = report.row.median_us;
  json["default_us"] = report.row.default_us;
  json["complete"] = report.result.complete;
  json["noise"] = to_string(report.result.noise);
  json["elapsed_us"] = report.result.elapsed.count();
  json["trials"] = trials_of(report.result);
  return json;
}

}  // namespace
}  // namespace attune::c

using namespace attune::c;  // NOLINT(google-build-using-namespace): these are its functions

attune_status attune_explain(const char* op, const char* problem, attune_device device,
                             const attune_call* call, char** json) noexcept {
  return guarded([&] {
    require("json", json);
    *json = json_text(explanation(NamedProblem(op, problem, device, call)));
  });
}

attune_status attune_forget(const char* op, const char* problem, attune_device device,
                            const attune_call* call) noexcept {
  return guarded([&] {
    const NamedProblem named(op, problem, device, call);
    named.context().forget(named.problem(), named.request());
  });
}

attune_status attune_tune(const char* op, const char* problem, attune_device device,
                          const attune_call* call, const attune_tune_options* given,
                          char** json) noexcept {
  return guarded([&] {
    require("json", json);
    attune_tune_options options{};
    if (given != nullptr) options = read_struct("options", given);
    *json = json_text(tuning(NamedProblem(op, problem, device, call), options));
  });
}
