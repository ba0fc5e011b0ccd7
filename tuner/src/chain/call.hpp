// What the parts of the chain share: its state, a call, and a tier's answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <attune/tuner/config_selector_chain.hpp>

#include "chain/scopes.hpp"
#include "chain/single_flight.hpp"
#include "recording/recorder.hpp"

namespace attune::chain {

struct State {
  State(const Registry& known_kernels, EventBus& bus, ConfigSelectorChain::Settings with)
      : registry(known_kernels), events(bus), settings(std::move(with)) {
    if (!settings.record.empty()) recorder = std::make_unique<Recorder>(settings.record);
  }

  /// Opens the databases on first use.
  ConfigStore& store();

  const Registry& registry;
  EventBus& events;
  const ConfigSelectorChain::Settings settings;

  /// Choices by key. In an entry of heuristic origin `tier` is not where it was found but the last
  /// tier that was asked and had no answer: kMemory (databases were not read), kPersistent (they
  /// were; a tuning may follow) or kAutotune (tuned, and no candidate was any good: final). So a
  /// heuristic hides neither a row nor a tuning.
  ConfigCache cache;
  std::mutex remembering;  // held while an entry is put
  SingleFlight flights;
  std::unique_ptr<Recorder> recorder;  // null: nothing is recorded

  struct Counters {
    std::atomic<std::uint64_t> tunings = 0;
    std::atomic<std::uint64_t> overrides = 0, overlays = 0, pins = 0, persistent_hits = 0,
                               heuristics = 0;
    std::atomic<std::uint64_t> stale_hits = 0, bucket_hits = 0, refused_rows = 0;
  } counters;

 private:
  std::mutex store_mutex_;
  std::atomic<ConfigStore*> opened_ = nullptr;
  std::unique_ptr<ConfigStore> store_;
};

/// The innermost policy from `scope` outwards, or the context's.
const AutotunePolicy& policy_in_force(const State& state, const scopes::Scope* scope);

/// One question to the chain. Texts are made when a tier needs them.
class Call {
 public:
  /// Throws InvalidArgument without a device, Unavailable for an op that is not registered.
  Call(const State& state, const SelectionKey& known_as, ProblemRef what, const Request& asked);

  const SelectionKey& key;
  ProblemRef problem;
  const Request& request;
  const OpInfo& op;
  const AutotunePolicy& policy;  // in force

  const Device& device() const { return *request.device; }
  const DeviceInfo& info() const { return request.device->info(); }
  std::string_view called_as() const {
    return request.called_as.empty() ? op.name : request.called_as;
  }
  const RowKey& row_key();
  const std::string& bucket();
  /// "recurrent_attention B=1 T=512 ...", for messages.
  std::string describe() const;

 private:
  std::optional<RowKey> row_key_;
  std::optional<std::string> bucket_;
};

/// What a tier says to a call.
struct Answer {
  std::optional<Choice> choice;
  TierNote::Outcome outcome = TierNote::Outcome::kMiss;
  std::string reason;
  std::string config;                  // "kernel config" when there is one, even when refused
  std::vector<std::string> refusals;   // rows that were passed over, and why
  std::vector<std::string> outranked;  // rows that would do and are not needed, and why
  bool stale = false;
  /// The user's own row for this very problem, of other versions: tuned again where that is
  /// allowed.
  bool is_to_be_tuned_again = false;
  bool neighbour = false;  // of a problem of another bucket

  static Answer chosen(Tier tier, const Candidate& candidate, std::string reason);
  static Answer miss(std::string reason);
  static Answer refused(std::string config, std::string reason);
  static Answer not_asked(std::string reason);
};

std::string describe(const Candidate& candidate);  // "kernel config"

// Tiers, in order. None changes anything but counters and events of databases; see
// config_selector_chain.hpp.
Answer ask_override(const State& state, const Call& call);
Answer ask_overlay(const State& state, const Call& call);
Answer ask_pin(State& state, Call& call);
Answer ask_memory(const State& state, const Call& call);
Answer ask_persistent(State& state, Call& call);
Answer ask_neighbour(State& state, Call& call);
Answer ask_heuristic(State& state, Call& call);

/// What serves a problem that nobody tuned: the nearest tuned neighbour, else the heuristic. Both
/// are answers of the heuristic tier, live in memory alone and hide no later row or tuning.
Answer ask_fallback(State& state, Call& call);

/// A candidate, or why the name does not give one.
struct Resolved {
  std::optional<Candidate> candidate;
  std::string reason;
};

/// A config by name for a call: the kernel is there and may serve the request, its parameters
/// parse, and it fits.
Resolved resolve(const State& state, const Call& call, const NamedConfig& named);

/// The same for a row: the kernel by its name, the config as text.
Resolved resolve_row(const State& state, const Call& call, const std::string& kernel,
                     const std::string& config);

/// A row's candidate for a call, or why it may not be used: it resolves, competes, and is not
/// quarantined.
Resolved validate_row(State& state, Call& call, const ConfigRow& row);

/// The row of this very problem that nothing is to be measured again for: it may be used, and it is
/// not stale.
std::optional<ConfigRow> tuned_row(State& state, Call& call);

/// "a user row of FILE, noise grade A, 1.3 times as fast as the default".
std::string describe_row(const ConfigStore::Hit& hit);

/// Why the row of a near problem should not serve this one, or "": the heuristic, which knows at
/// what sizes other configs become the best, chooses another one there.
std::string why_unlike(const State& state, const Call& call, const ConfigRow& row);

/// Kernels that may serve a request: of its op, platform and backend. Throws Unavailable for an
/// unknown platform.
std::vector<const RegisteredKernel*> serving(const State& state, const Call& call);

/// Kernels that compete for a problem, the default first: by priority, then by the time they
/// expect, then in the order of registration. The reference is among them only when nothing else
/// supports the problem, or when the request is for its platform.
std::vector<const RegisteredKernel*> competitors(const State& state, const Call& call,
                                                 ProblemRef problem);
inline std::vector<const RegisteredKernel*> competitors(const State& state, const Call& call) {
  return competitors(state, call, call.problem);
}

/// Every kernel that may serve the request, and why it does not take the problem.
std::string why_unsupported(const State& state, const Call& call);

/// Whether a memory entry answers without asking any other tier.
bool is_final(const Choice& entry, const AutotunePolicy& policy);

/// Whether a policy tunes, and this process has tuning time left.
bool may_tune(const AutotunePolicy& policy);

/// Why a call must not be tuned now, or "".
std::string why_not_tune(const State& state, const Call& call);

/// Whether the heuristic's choice is all there is to try, so that measuring could change nothing.
bool has_one_candidate(const State& state, const Call& call);

/// The autotune tier: tunes when the call allows it and nobody else does.
Answer ask_autotune(State& state, Call& call);

/// Puts a choice in memory, unless a pin stands above it.
void remember(State& state, Call& call, const Choice& choice);

/// Whether something else than a tuning of this very problem made the choice.
inline bool is_untuned(const Choice& choice) {
  return choice.origin == Tier::kHeuristic || choice.bucket_hit;
}

/// Counts a call that has this answer, when nothing was tuned for it and tuning could change that.
void record(State& state, Call& call, const Answer& answer);

}  // namespace attune::chain
