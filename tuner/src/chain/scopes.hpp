// The scopes of a thread: policies and overlays in force, innermost first, as an immutable list.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <attune/core/params.hpp>
#include <attune/core/selection.hpp>
#include <attune/tuner/policy.hpp>

namespace attune::scopes {

struct Overlay {
  std::string op;
  NamedConfig config;
  std::optional<Params> problem;  // nothing: every problem it fits
};

/// Either a policy or an overlay, and what was in force around it.
struct Scope {
  std::shared_ptr<const Scope> outer;
  std::optional<AutotunePolicy> policy;
  std::optional<Overlay> overlay;
  bool has_overlay = false;  // this one, or one around it
};

/// This thread's innermost scope, or null. Each call reads it, so it is a plain pointer: a
/// thread_local with a destructor would be guarded at each use. It is not initial-exec, which would
/// save a few nanoseconds: dlopen() refuses a library whose initial-exec data does not fit what is
/// left of the static TLS block, and CUDA's run-time in this library takes 8 KiB of that.
extern constinit thread_local const Scope* active;

/// The innermost policy from `scope` outwards, or null.
inline const AutotunePolicy* policy_of(const Scope* scope) noexcept {
  while (scope != nullptr && !scope->policy) scope = scope->outer.get();
  return scope == nullptr ? nullptr : &*scope->policy;
}

}  // namespace attune::scopes
