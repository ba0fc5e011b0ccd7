#include <cassert>
#include <string>
#include <utility>
#include <vector>

#include <attune/core/error.hpp>
#include <attune/core/params.hpp>
#include <attune/tuner/policy.hpp>

#include "chain/scopes.hpp"

namespace attune {
namespace {

constexpr Policy kPolicies[] = {Policy::kTune, Policy::kDb, Policy::kHeuristic, Policy::kStrict,
                                Policy::kStrictFresh};

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
    case Policy::kStrictFresh:
      return "strict-fresh";
  }
  return "?";
}

Policy parse_policy(std::string_view text) {
  for (const Policy policy : kPolicies) {
    if (to_string(policy) == text) return policy;
  }
  throw InvalidArgument(str("policy '", text,
                            "': expected tune, db, heuristic, strict or strict-fresh",
                            did_you_mean(text, policy_names())));
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Policy policy : kPolicies) names.emplace_back(to_string(policy));
  return names;
}

AutotunePolicy AutotunePolicy::of(Policy policy) {
  AutotunePolicy full;
  if (policy == Policy::kTune) return full;
  const bool strict = policy == Policy::kStrict || policy == Policy::kStrictFresh;
  full.cache_miss_fallback = strict ? Miss::kError : Miss::kHeuristic;
  full.use_databases = policy != Policy::kHeuristic;
  full.allow_autotune = false;
  full.allow_heuristics = !strict;
  full.allow_stale = policy != Policy::kStrictFresh;
  full.persist_autotune = strict;  // only a retune() that was asked for could write
  return full;
}

namespace scopes {

constinit thread_local const Scope* active = nullptr;

namespace {

/// Keeps what `active` points to; touched only where a scope begins or ends.
thread_local std::shared_ptr<const Scope> owner;

std::shared_ptr<const Scope> replace(std::shared_ptr<const Scope> scope) {
  std::shared_ptr<const Scope> previous = std::exchange(owner, std::move(scope));
  active = owner.get();
  return previous;
}

void enter(Scope scope) {
  scope.outer = owner;
  scope.has_overlay = scope.overlay.has_value() || (owner != nullptr && owner->has_overlay);
  replace(std::make_shared<const Scope>(std::move(scope)));
}

void leave() {
  assert(owner != nullptr && "a scope ends on the thread it began on");
  if (owner != nullptr) replace(owner->outer);
}

}  // namespace
}  // namespace scopes

PolicyScope::PolicyScope(const AutotunePolicy& policy) {
  scopes::Scope scope;
  scope.policy = policy;
  scopes::enter(std::move(scope));
}

PolicyScope::~PolicyScope() { scopes::leave(); }

OverlayScope::OverlayScope(std::string_view op, NamedConfig config, std::string_view problem) {
  scopes::Overlay overlay{std::string(op), std::move(config), std::nullopt};
  if (!problem.empty()) overlay.problem = parse_params(problem, ' ');
  scopes::Scope scope;
  scope.overlay = std::move(overlay);
  scopes::enter(std::move(scope));
}

OverlayScope::~OverlayScope() { scopes::leave(); }

CapturedScopes CapturedScopes::of_this_thread() {
  CapturedScopes captured;
  captured.scopes_ = scopes::owner;
  return captured;
}

CapturedScopes::Attached CapturedScopes::attach() const {
  return Attached(scopes::replace(std::static_pointer_cast<const scopes::Scope>(scopes_)));
}

CapturedScopes::Attached::~Attached() {
  scopes::replace(std::static_pointer_cast<const scopes::Scope>(std::move(previous_)));
}

}  // namespace attune
