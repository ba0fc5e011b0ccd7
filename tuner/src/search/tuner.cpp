#include <attune/core/error.hpp>
#include <attune/tuner/tuner.hpp>

#include "search/search.hpp"

namespace attune {

std::string_view to_string(TrialOutcome outcome) {
  switch (outcome) {
    case TrialOutcome::kOk:
      return "ok";
    case TrialOutcome::kSlow:
      return "slow";
    case TrialOutcome::kUnsupported:
      return "unsupported";
    case TrialOutcome::kQuarantined:
      return "quarantined";
    case TrialOutcome::kWrong:
      return "wrong";
    case TrialOutcome::kFailed:
      return "failed";
    case TrialOutcome::kCrashed:
      return "crashed";
    case TrialOutcome::kNotReached:
      return "not_reached";
  }
  return "?";
}

Tuner::Tuner(int warmup, int iters) {
  if (warmup < 0) throw InvalidArgument(str("tuner: warmup is ", warmup, ", expected at least 0"));
  if (iters < 1) throw InvalidArgument(str("tuner: iters is ", iters, ", expected at least 1"));
  settings_.warmup = warmup;
  settings_.iters = iters;
}

TuneResult Tuner::tune(const Request& request) const {
  return tuning::Search(settings_, request).run();
}

const RegisteredKernel* find_oracle(const Registry& registry, std::string_view op,
                                    const Device& device) {
  const auto rank = [&](const RegisteredKernel& entry) {
    const std::string_view backend = entry.at.backend.view();
    if (backend == device.info().id.backend.view()) return 3;
    if (backend == kAnyBackend) return 2;
    return backend == cpu_device().info().id.backend.view() ? 1 : 0;
  };
  const RegisteredKernel* best = nullptr;
  for (const RegisteredKernel* entry : registry.kernels(op)) {
    if (entry->at.platform.view() != kReferencePlatform || rank(*entry) == 0) continue;
    if (best == nullptr || rank(*entry) > rank(*best)) best = entry;
  }
  return best;
}

const Device& oracle_device(const RegisteredKernel& oracle, const Device& device) {
  const std::string_view runs_on = oracle.at.backend.view();
  const bool here = runs_on == kAnyBackend || runs_on == device.info().id.backend.view();
  return here ? device : cpu_device();
}

}  // namespace attune
