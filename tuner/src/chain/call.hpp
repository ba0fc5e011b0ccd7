// What the tiers of the chain share: the chain's state, the call that is answered, and an answer.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <attune/core/events.hpp>
#include <attune/tuner/config_selector_chain.hpp>

#include "chain/scopes.hpp"
#include "chain/single_flight.hpp"
#include "recording/recorder.hpp"
#include "telemetry/event_file.hpp"
#include "telemetry/stats_file.hpp"

namespace attune::chain {

inline constexpr std::size_t kTierCount = static_cast<std::size_t>(Tier::kHeuristic) + 1;

/// What a chain holds for as long as it lives.
struct State {
  State(const Registry& known_kernels, EventBus& bus, ConfigSelectorChain::Settings with)
      : registry(known_kernels), events(bus), settings(std::move(with)) {
    if (!settings.record.empty()) recorder = std::make_unique<Recorder>(settings.record);
  }

  /// Opens the databases on first use.
  ConfigStore& store();
  /// Null before their first use.
  const ConfigStore* open_store() const { return opened_.load(std::memory_order_acquire); }

  const Registry& registry;
  EventBus& events;
  const ConfigSelectorChain::Settings settings;
  std::atomic<const AutotunePolicy*> policy = &settings.policy;  // set_policy() replaces it

  /// The memory tier: choices by key. Where the heuristic made the choice, its `tier` says how far
  /// the chain got before: kMemory (databases were not read), kPersistent (they were, and a tuning
  /// may follow) or kAutotune (tuning was of no use: the choice is final). So a remembered
  /// heuristic hides neither a row nor a tuning.
  ConfigCache cache;
  std::mutex remembering;                     // held while a choice is put into the cache
  std::atomic<std::uint64_t> generation = 0;  // of the cache: how often it was emptied
  std::atomic<bool> is_frozen = false;
  SingleFlight flights;
  std::unique_ptr<Recorder> recorder;  // null: nothing is recorded

  /// See ConfigSelectorChain::Counters. Answers are counted by tier.
  struct Counters {
    std::array<std::atomic<std::uint64_t>, kTierCount> answers{};
    std::atomic<std::uint64_t> tunings = 0, stale_hits = 0, bucket_hits = 0, refused_rows = 0;
    std::atomic<std::uint64_t> tuning_us = 0, faults = 0, reloads = 0;
  } counters;

 private:
  std::mutex store_mutex_;
  std::atomic<ConfigStore*> opened_ = nullptr;
  std::unique_ptr<ConfigStore> store_;

 public:
  // Last: these use all of the above.
  EventBus::Subscription counting_faults;
  std::optional<telemetry::EventFile> event_file;
  std::optional<telemetry::StatsFile> stats_file;
  std::optional<telemetry::PeriodicTask> watching_databases;
};

/// Begins to write what the settings name files for, and to look for replaced databases.
void start_telemetry(State& state);

/// The policy of the innermost scope that has one, or the context's. A frozen chain's never tunes:
/// then it is this thread's until the next call.
const AutotunePolicy& policy_in_force(const State& state, const scopes::Scope* scope);

/// One call of select() or explain(). Texts are made when a tier needs them.
class Call {
 public:
  /// Throws InvalidArgument without a device, Unavailable for an op that is not registered.
  Call(const State& state, const SelectionKey& known_as, ProblemRef what, const Request& asked);

  const SelectionKey& key;
  ProblemRef problem;
  const Request& request;
  const OpInfo& op;
  const AutotunePolicy& policy;    // in force
  const std::uint64_t generation;  // of the cache when the call began

  std::string previous_reason;  // select(): why the tier before the one that is asked has no answer
  std::string why_no_row;       // select(): why the rows that there are were all refused
  /// Something was passed over that needs more than the request's workspace_limit: what is chosen
  /// instead is remembered for that limit alone.
  bool is_bound = false;
  bool is_tuned_above_limit = false;  // and that was what this very problem was tuned to
  bool is_answered = false;           // explain(): a tier above has an answer

  const Device& device() const { return *request.device; }
  const DeviceInfo& info() const { return request.device->info(); }
  std::string_view called_as() const {
    return request.called_as.empty() ? op.name : request.called_as;
  }
  /// Why a candidate needs more scratch memory than the request allows, or "".
  std::string why_too_large(const Candidate& candidate);
  /// What a choice is remembered under.
  SelectionKey memory_key() const;
  const RowKey& row_key();
  const std::string& bucket();
  /// "recurrent_attention B=1 T=512 ...", for messages.
  std::string describe() const;
  /// An event of this call, with its op and problem.
  Event event(EventKind kind, Tier tier);

 private:
  const std::string_view objective_;  // "": the time
  std::optional<RowKey> row_key_;
  std::optional<std::string> bucket_;
};

/// What a tier says to a call.
struct Answer {
  std::optional<Choice> choice;
  TierNote::Outcome outcome = TierNote::Outcome::kMiss;
  std::string reason;
  std::string config;                  // "kernel config" when there is one, even when refused
  std::vector<std::string> refusals;   // rows and configs that were passed over, and why
  std::vector<std::string> outranked;  // rows that would do as well but rank lower, and why
  bool stale = false;
  /// The row is stale, the user's own, and of this very problem: tuned again where that is allowed.
  bool is_to_be_tuned_again = false;
  bool neighbour = false;  // the row is of a problem of another bucket
  bool is_error = false;   // refused, and no tier below is asked: select() throws

  static Answer chosen(Tier tier, const Candidate& candidate, std::string reason);
  static Answer miss(std::string reason);
  static Answer refused(std::string config, std::string reason);
  static Answer not_asked(std::string reason);
};

/// Whether something else than a tuning of this very problem made the choice.
inline bool is_untuned(const Choice& choice) {
  return choice.origin == Tier::kHeuristic || choice.bucket_hit;
}

std::string describe(const Candidate& candidate);  // "kernel config"

}  // namespace attune::chain
