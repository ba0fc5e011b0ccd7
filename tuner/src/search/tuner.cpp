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

}  // namespace attune
