// What happens when a problem is not known: policies, for the process, a context, or a scope of a
// thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string_view>

#include <attune/core/selection.hpp>

namespace attune {

enum class Policy {
  kTune,  // look up; a miss tunes within the online budget, else takes the heuristic. The default
  kDb,    // look up; a miss takes the heuristic. For serving: never tunes, never writes
  kHeuristic,  // memory and heuristic only: databases are not read
  kStrict,     // look up; a miss is an error (NotTuned)
};
std::string_view to_string(Policy policy);   // "tune", "db", "heuristic", "strict"
Policy parse_policy(std::string_view text);  // throws InvalidArgument

/// A policy in full. Immutable once a context has it; scopes replace it, nothing edits it.
struct AutotunePolicy {
  enum class Miss { kAutotune, kHeuristic, kError };

  Miss cache_miss_fallback = Miss::kAutotune;
  bool use_databases = true;
  bool allow_autotune = true;    // false: kAutotune goes on to the heuristic
  bool allow_heuristics = true;  // false: a problem that nothing else answers is an error
  bool persist_autotune = true;  // false: tuned choices live in memory only
  bool validate_backward =
      false;  // tuning an op also checks its backward op's choice against the oracle
  bool wait_for_other_tuner =
      false;  // while another thread or process tunes the problem: wait, or heuristic
  std::chrono::milliseconds problem_budget{2000};   // of one online tuning
  std::chrono::milliseconds process_budget{30000};  // of all online tunings of this process

  static AutotunePolicy of(Policy policy);
  friend bool operator==(const AutotunePolicy&, const AutotunePolicy&) = default;
};

/// Puts a policy in force for this thread until destroyed, in every context; the innermost scope
/// counts. Scopes end in the reverse order of their beginning, on the thread they began on.
class PolicyScope {
 public:
  explicit PolicyScope(Policy policy) : PolicyScope(AutotunePolicy::of(policy)) {}
  explicit PolicyScope(const AutotunePolicy& policy);
  ~PolicyScope();
  PolicyScope(const PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;
};

/// Puts a config in force for this thread until destroyed, for calls of `op` it fits (a problem it
/// does not fit is chosen for as if there were none). With `problem` text, for that problem only.
/// Scopes nest: the innermost that fits counts. Nothing of an overlay is ever stored.
class OverlayScope {
 public:
  OverlayScope(std::string_view op, NamedConfig config, std::string_view problem = {});
  ~OverlayScope();
  OverlayScope(const OverlayScope&) = delete;
  OverlayScope& operator=(const OverlayScope&) = delete;
};

/// The policy and overlay scopes of the thread that captures them, to put in force on another.
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
