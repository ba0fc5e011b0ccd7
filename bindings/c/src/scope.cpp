#include <memory>
#include <utility>

#include <attune/core/selection.hpp>
#include <attune/tuner/policy.hpp>

#include "handles.hpp"
#include "status.hpp"
#include "structs.hpp"

/// Something in force on a thread. `outer` is what the thread began before.
struct attune_scope {
  virtual ~attune_scope() = default;
  attune_scope* outer = nullptr;
};

namespace attune::c {
namespace {

/// What this thread began last and has not ended.
thread_local attune_scope* innermost = nullptr;

template <class Scope>
struct Held : attune_scope {
  template <class... Args>
  explicit Held(const Args&... args) : scope(args...) {}
  Scope scope;
};

struct HeldAttachment : attune_scope {
  explicit HeldAttachment(const CapturedScopes& scopes) : attached(scopes.attach()) {}
  CapturedScopes::Attached attached;
};

template <class Scope, class... Args>
attune_scope* begin(const Args&... args) {
  auto scope = std::make_unique<Scope>(args...);
  scope->outer = std::exchange(innermost, scope.get());
  return scope.release();
}

}  // namespace
}  // namespace attune::c

using namespace attune::c;  // NOLINT(google-build-using-namespace): these are its functions

attune_status attune_scope_policy(const char* policy, attune_scope** out) noexcept {
  return guarded([&] {
    require("policy", policy);
    require("out", out);
    *out = begin<Held<attune::PolicyScope>>(attune::parse_policy(policy));
  });
}

attune_status attune_scope_overlay(const char* op, const char* config, const char* problem,
                                   attune_scope** out) noexcept {
  return guarded([&] {
    require("op", op);
    require("config", config);
    require("out", out);
    *out =
        begin<Held<attune::OverlayScope>>(std::string_view(op), attune::NamedConfig::parse(config),
                                          std::string_view(problem == nullptr ? "" : problem));
  });
}

attune_status attune_scope_end(attune_scope* scope) noexcept {
  return guarded([&] {
    if (scope == nullptr) return;
    if (scope != innermost) {
      throw attune::InvalidArgument("scope: is not the last one that this thread began");
    }
    innermost = scope->outer;
    delete scope;
  });
}

attune_status attune_scopes_capture(attune_scopes** out) noexcept {
  return guarded([&] {
    require("out", out);
    *out = new attune_scopes{attune::CapturedScopes::of_this_thread()};
  });
}

attune_status attune_scopes_attach(const attune_scopes* scopes, attune_scope** out) noexcept {
  return guarded([&] {
    require("scopes", scopes);
    require("out", out);
    *out = begin<HeldAttachment>(scopes->captured);
  });
}

void attune_scopes_destroy(attune_scopes* scopes) noexcept { delete scopes; }
