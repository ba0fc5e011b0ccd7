#include "process/worker_protocol.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <attune/core/error.hpp>
#include <attune/core/params.hpp>

namespace attune::cli {

using nlohmann::json;

std::string to_line(const json& message) {
  return message.dump(-1, ' ', false, json::error_handler_t::replace);
}

json from_line(std::string_view line) {
  json message = json::parse(line, nullptr, false);
  return message.is_object() ? message : json();
}

json to_json(const Candidate& candidate) {
  return {{"kernel", candidate.kernel->name()},
          {"config", to_text(candidate.kernel->params(candidate.config))}};
}

Candidate candidate_from(const json& message, const Registry& registry) {
  const auto name = message.at("kernel").get<std::string>();
  const RegisteredKernel* found = registry.find_kernel(name);
  if (found == nullptr) throw Unavailable(str("no kernel '", name, "'"));
  const ErasedKernel& kernel = *found->kernel;
  return {&kernel, kernel.parse(parse_params(message.at("config").get<std::string>()))};
}

json to_json(const tuning::Verdict& verdict) {
  return {{"outcome", to_string(verdict.outcome)},
          {"reason", verdict.reason},
          {"error", verdict.error}};
}

tuning::Verdict verdict_from(const json& message) {
  constexpr std::array kOutcomes{TrialOutcome::kOk, TrialOutcome::kWrong, TrialOutcome::kFailed,
                                 TrialOutcome::kCrashed};
  tuning::Verdict verdict;
  const auto outcome = message.at("outcome").get<std::string>();
  const auto known = std::find_if(kOutcomes.begin(), kOutcomes.end(),
                                  [&](TrialOutcome o) { return to_string(o) == outcome; });
  if (known == kOutcomes.end()) throw InvalidArgument(str("no outcome '", outcome, "'"));
  verdict.outcome = *known;
  verdict.reason = message.at("reason").get<std::string>();
  // JSON has no infinity: an error that large comes as null.
  const json& error = message.at("error");
  verdict.error = error.is_number() ? error.get<double>() : HUGE_VAL;
  return verdict;
}

}  // namespace attune::cli
