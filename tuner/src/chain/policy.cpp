#include <string>
#include <vector>

#include <attune/core/error.hpp>
#include <attune/core/params.hpp>
#include <attune/tuner/policy.hpp>

namespace attune {
namespace {

constexpr Policy kPolicies[] = {Policy::kTune, Policy::kDb, Policy::kHeuristic, Policy::kStrict};

}  // namespace

std::string_view to_string(Policy policy) {
  switch (policy) {
    case Policy::kTune:
      return "tune";
    case Policy::kDb:
      return "db";
    case Policy::kHeuristic:
      return "heuristic";
    case Policy::kStrict:
      return "strict";
  }
  return "?";
}

Policy parse_policy(std::string_view text) {
  std::vector<std::string> names;
  for (const Policy policy : kPolicies) {
    if (to_string(policy) == text) return policy;
    names.emplace_back(to_string(policy));
  }
  throw InvalidArgument(str("policy '", text, "': expected tune, db, heuristic or strict",
                            did_you_mean(text, names)));
}

AutotunePolicy AutotunePolicy::of(Policy policy) {
  AutotunePolicy full;
  if (policy == Policy::kTune) return full;
  full.cache_miss_fallback = policy == Policy::kStrict ? Miss::kError : Miss::kHeuristic;
  full.use_databases = policy != Policy::kHeuristic;
  full.allow_autotune = false;
  full.allow_heuristics = policy != Policy::kStrict;
  full.persist_autotune =
      policy == Policy::kStrict;  // only a retune() that was asked for could write
  return full;
}

}  // namespace attune
