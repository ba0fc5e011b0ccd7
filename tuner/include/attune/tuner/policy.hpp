// Policies: which tiers of the chain are asked, and what happens when a problem is not known; for
// the process (ATTUNE_POLICY), a context, or a scope of a thread.
//
//   policy          reads databases   a problem that is not known
//   kTune, default  yes               is tuned within the budgets, else takes the heuristic
//   kDb             yes               takes the heuristic: for serving; never tunes, never writes
//   kHeuristic      no                takes the heuristic
//   kStrict         yes               is an error, NotTuned
//   kStrictFresh    yes               is an error, and so is one whose rows are all stale: measured
//                                     with another version of kernel, library or driver
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <attune/core/selection.hpp>

namespace attune {

enum class Policy { kTune, kDb, kHeuristic, kStrict, kStrictFresh };
std::string_view to_string(Policy policy);   // "tune", "db", "heuristic", "strict", "strict-fresh"
Policy parse_policy(std::string_view text);  // throws InvalidArgument
std::vector<std::string> policy_names();

/// A policy in full; a context has one, and scopes replace it.
struct AutotunePolicy {
  enum class Miss { kAutotune, kHeuristic, kError };

  Miss cache_miss_fallback = Miss::kAutotune;
  bool use_databases = true;
  bool allow_autotune = true;    // false: kAutotune goes on to the heuristic
  bool allow_heuristics = true;  // false: a problem that nothing else answers is an error
  bool allow_stale = true;       // false: stale rows are refused
  bool persist_autotune = true;  // false: tuned choices live in memory only
  /// Tuning an op also checks the choice for its backward op against the oracle.
  bool validate_backward = false;
  /// While another thread or process tunes the problem: wait for it, or take the heuristic.
  bool wait_for_other_tuner = false;
  std::chrono::milliseconds problem_budget{2000};   // of one tuning by a call
  std::chrono::milliseconds process_budget{30000};  // of all of them in this process

  static AutotunePolicy of(Policy policy);
  friend bool operator==(const AutotunePolicy&, const AutotunePolicy&) = default;
};

/// Puts a policy in force for this thread until destroyed, in every context; of nested scopes the
/// innermost counts. Scopes end on the thread they began on, the last begun first.
class PolicyScope {
 public:
  explicit PolicyScope(Policy policy) : PolicyScope(AutotunePolicy::of(policy)) {}
  explicit PolicyScope(const AutotunePolicy& policy);
  ~PolicyScope();
  PolicyScope(const PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;
};

/// Puts a config in force for this thread until destroyed: for the calls of `op` that it fits, or,
/// with a `problem` as text, for that problem alone. Calls that it does not fit go on as without
/// it. Of nested scopes the innermost that fits counts. An overlay is never stored.
class OverlayScope {
 public:
  OverlayScope(std::string_view op, NamedConfig config, std::string_view problem = {});
  ~OverlayScope();
  OverlayScope(const OverlayScope&) = delete;
  OverlayScope& operator=(const OverlayScope&) = delete;
};

/// The policy and overlay scopes of one thread, to be put in force on another.
///
///   auto scopes = CapturedScopes::of_this_thread();
///   std::thread([scopes] { const auto attached = scopes.attach(); recurrent_attention(...); });
class CapturedScopes {
 public:
  static CapturedScopes of_this_thread();

  class Attached {
   public:
    ~Attached();
    Attached(const Attached&) = delete;
    Attached& operator=(const Attached&) = delete;

   private:
    friend class CapturedScopes;
    explicit Attached(std::shared_ptr<const void> previous) : previous_(std::move(previous)) {}
    std::shared_ptr<const void> previous_;
  };
  /// Replaces this thread's scopes until the result is destroyed.
  [[nodiscard]] Attached attach() const;

 private:
  std::shared_ptr<const void> scopes_;
};

}  // namespace attune
