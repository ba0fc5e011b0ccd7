#include <utility>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/tuner/config_selector_chain.hpp>

#include "chain/call.hpp"
#include "chain/explain.hpp"
#include "chain/scopes.hpp"
#include "chain/tuning.hpp"

namespace attune {

struct ConfigSelectorChain::State : chain::State {
  using chain::State::State;
};

namespace {

using chain::Answer;
using chain::Call;

/// A hit that needs no other tier, or null: no lock, no allocation.
const Choice* find_in_memory(chain::State& state, const AutotunePolicy& policy,
                             const SelectionKey& key, ProblemRef problem, const Request& request) {
  const Choice* hit = state.cache.find(key);
  if (hit == nullptr || !chain::is_final(*hit, policy)) return nullptr;
  if (state.events.active()) {
    Event event;
    event.op = request.called_as.empty() ? problem.op : request.called_as;
    event.kernel = hit->kernel->name();
    event.version = hit->kernel->version();
    event.tier = Tier::kMemory;
    event.reason = to_string(hit->origin);
    state.events.emit(event);
  }
  if (state.recorder != nullptr && chain::is_untuned(*hit)) state.recorder->count_again(key);
  return hit;
}

Choice from_memory(const Choice& hit) {
  Choice choice = hit;
  choice.tier = Tier::kMemory;
  return choice;
}

/// What select() gives for an answer of a tier: counted, told, and remembered where that is right.
Choice deliver(chain::State& state, Call& call, Tier tier, const Answer& answer) {
  auto& counters = state.counters;
  const Choice& choice = *answer.choice;
  if (tier == Tier::kOverride) ++counters.overrides;
  if (tier == Tier::kOverlay) ++counters.overlays;
  if (tier == Tier::kPin) ++counters.pins;
  if (tier == Tier::kPersistent) ++counters.persistent_hits;
  if (tier == Tier::kHeuristic) ++counters.heuristics;
  if (answer.stale) ++counters.stale_hits;
  if (choice.bucket_hit && tier == Tier::kPersistent) ++counters.bucket_hits;
  if (tier == Tier::kPin || tier == Tier::kPersistent) remember(state, call, choice);
  if (tier == Tier::kPersistent || tier == Tier::kHeuristic) {
    record(state, call, answer);
  }
  if (state.events.active()) {
    const std::string problem = call.op.text(call.problem, false);
    const std::string config = config_text(*choice.kernel, choice.config);
    Event event;
    event.op = call.called_as();
    event.problem = problem;
    event.kernel = choice.kernel->name();
    event.version = choice.kernel->version();
    event.config = config;
    event.reason = answer.reason;
    event.tier = tier;
    state.events.emit(event);
  }
  return choice;
}

void report_refusals(chain::State& state, Call& call, Tier tier, const Answer& answer) {
  if (tier == Tier::kPersistent) state.counters.refused_rows += answer.refusals.size();
  if (tier == Tier::kPin && answer.outcome == TierNote::Outcome::kRefused) {
    log_once(LogLevel::kWarning,
             str("the pin for ", call.describe(), " is refused: ", answer.reason));
  }
  for (const std::string& reason : answer.refusals)
    log(LogLevel::kDebug, str(call.describe(), ": ", reason));
  if (!state.events.active()) return;
  const std::string problem = call.op.text(call.problem, false);
  const auto emit = [&](std::string_view reason) {
    Event event;
    event.kind = EventKind::kDatabase;
    event.op = call.called_as();
    event.problem = problem;
    event.tier = tier;
    event.reason = reason;
    state.events.emit(event);
  };
  if (tier == Tier::kPin && answer.outcome == TierNote::Outcome::kRefused) emit(answer.reason);
  if (tier == Tier::kPersistent) {
    for (const std::string& reason : answer.refusals) emit(reason);
  }
}

/// Whether the databases were asked about a problem before, and had nothing.
bool known_to_be_missing(const chain::State& state, const Call& call) {
  const Choice* entry = state.cache.find(call.key);
  return entry != nullptr && entry->origin == Tier::kHeuristic && entry->tier >= Tier::kPersistent;
}

Choice fall_back(chain::State& state, Call& call, const Answer& autotune) {
  Answer heuristic = ask_fallback(state, call);
  if (!heuristic.choice) throw Unsupported(heuristic.reason);
  Choice remembered = *heuristic.choice;
  remembered.tier = call.policy.use_databases ? Tier::kPersistent : Tier::kMemory;
  remember(state, call, remembered);
  if (call.policy.cache_miss_fallback == AutotunePolicy::Miss::kError ||
      !call.policy.allow_heuristics) {
    throw NotTuned(str("no tuned config is known for ", call.describe(),
                       " and the policy allows no other (", autotune.reason,
                       "); tune it with: attune tune ", call.called_as(), " ",
                       call.op.text(call.problem, false)));
  }
  if (!autotune.reason.empty()) heuristic.reason += "; " + autotune.reason;
  return deliver(state, call, Tier::kHeuristic, heuristic);
}

Choice select_past_memory(chain::State& state, Call& call) {
  Answer row;
  if (!known_to_be_missing(state, call)) {
    const Answer pin = ask_pin(state, call);
    report_refusals(state, call, Tier::kPin, pin);
    if (pin.choice) return deliver(state, call, Tier::kPin, pin);
    row = ask_persistent(state, call);
    report_refusals(state, call, Tier::kPersistent, row);
    if (row.choice && !row.is_to_be_tuned_again) {
      return deliver(state, call, Tier::kPersistent, row);
    }
  }
  const Answer tuned = ask_autotune(state, call);
  // Another thread or process may have been faster: then the answer is from memory or a row.
  if (tuned.choice) return deliver(state, call, tuned.choice->tier, tuned);
  if (row.choice) return deliver(state, call, Tier::kPersistent, row);  // stale, and good enough
  return fall_back(state, call, tuned);
}

}  // namespace

ConfigSelectorChain::ConfigSelectorChain(const Registry& registry, EventBus& events,
                                         Settings settings)
    : state_(std::make_unique<State>(registry, events, std::move(settings))) {}

ConfigSelectorChain::~ConfigSelectorChain() = default;

Choice ConfigSelectorChain::select(const SelectionKey& key, ProblemRef problem,
                                   const Request& request) {
  const scopes::Scope* scope = scopes::active;
  const AutotunePolicy& policy = chain::policy_in_force(*state_, scope);
  const bool has_overlay = scope != nullptr && scope->has_overlay;
  if (request.config == nullptr && !has_overlay) {
    if (const Choice* hit = find_in_memory(*state_, policy, key, problem, request)) {
      return from_memory(*hit);
    }
  }
  Call call(*state_, key, problem, request);
  if (request.config != nullptr) {
    const Answer given = ask_override(*state_, call);
    if (!given.choice) throw InvalidArgument(str(call.called_as(), ": ", given.reason));
    return deliver(*state_, call, Tier::kOverride, given);
  }
  if (has_overlay) {
    if (const Answer overlay = ask_overlay(*state_, call); overlay.choice) {
      return deliver(*state_, call, Tier::kOverlay, overlay);
    }
    if (const Choice* hit = find_in_memory(*state_, policy, key, problem, request)) {
      return from_memory(*hit);
    }
  }
  return select_past_memory(*state_, call);
}

Decision ConfigSelectorChain::explain(ProblemRef problem, const Request& request) {
  const SelectionKey key = selection_key(state_->registry.op(problem.op), problem, request);
  Call call(*state_, key, problem, request);
  return chain::explain(*state_, call);
}

void ConfigSelectorChain::forget(ProblemRef problem, const Request& request) {
  const SelectionKey key = selection_key(state_->registry.op(problem.op), problem, request);
  Call call(*state_, key, problem, request);
  state_->cache.erase(key);
  state_->store().erase(call.row_key());
}

Choice ConfigSelectorChain::retune(ProblemRef problem, const Request& request) {
  const SelectionKey key = selection_key(state_->registry.op(problem.op), problem, request);
  Call call(*state_, key, problem, request);
  return chain::retune(*state_, call);
}

ConfigSelectorChain::TuneReport ConfigSelectorChain::tune(ProblemRef problem,
                                                          const Request& request,
                                                          const Tuner::Settings& settings) {
  AutotunePolicy policy = chain::policy_in_force(*state_, scopes::active);
  policy.use_databases = true;
  policy.persist_autotune = true;
  const PolicyScope scope(policy);
  const SelectionKey key = selection_key(state_->registry.op(problem.op), problem, request);
  Call call(*state_, key, problem, request);
  return chain::tune_and_store(*state_, call, settings);
}

std::optional<ConfigRow> ConfigSelectorChain::tuned_row(ProblemRef problem,
                                                        const Request& request) {
  const SelectionKey key = selection_key(state_->registry.op(problem.op), problem, request);
  Call call(*state_, key, problem, request);
  return chain::tuned_row(*state_, call);
}

ConfigSelectorChain::Counters ConfigSelectorChain::counters() const {
  const auto& from = state_->counters;
  Counters counters;
  counters.tunings = from.tunings;
  counters.overrides = from.overrides;
  counters.overlays = from.overlays;
  counters.pins = from.pins;
  counters.persistent_hits = from.persistent_hits;
  counters.heuristics = from.heuristics;
  counters.stale_hits = from.stale_hits;
  counters.bucket_hits = from.bucket_hits;
  counters.refused_rows = from.refused_rows;
  return counters;
}

ConfigStore& ConfigSelectorChain::store() { return state_->store(); }
ConfigCache& ConfigSelectorChain::cache() { return state_->cache; }
const AutotunePolicy& ConfigSelectorChain::policy() const { return state_->settings.policy; }

}  // namespace attune
