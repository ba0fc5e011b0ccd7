#include <array>
#include <atomic>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/core/profiler.hpp>
#include <attune/tuner/config_selector_chain.hpp>

#include "chain/scopes.hpp"
#include "chain/tiers.hpp"
#include "chain/tuning.hpp"

namespace attune {

struct ConfigSelectorChain::State : chain::State {
  using chain::State::State;
};

namespace {

using chain::Call;

/// A remembered choice that no other tier needs be asked for, or null: no lock, no allocation.
const Choice* find_in_memory(chain::State& state, const AutotunePolicy& policy,
                             const SelectionKey& key, ProblemRef problem, const Request& request) {
  const Choice* hit = chain::find_remembered(state, key, problem, request);
  if (hit == nullptr || !chain::is_final(*hit, policy)) return nullptr;
  if (hit->prepared == nullptr && hit->kernel->prepares()) return nullptr;
  if (state.events.tells_memory_hits()) {
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

/// Throws where the choices of a chain are not to change any more.
void refuse_if_frozen(const chain::State& state, std::string_view what, const Call& call) {
  if (state.is_frozen)
    throw InvalidArgument(str(what, ": ", call.describe(), ": the context is frozen"));
}

Choice from_memory(const Choice& hit) {
  Choice choice = hit;
  choice.tier = Tier::kMemory;
  return choice;
}

}  // namespace

ConfigSelectorChain::ConfigSelectorChain(const Registry& registry, EventBus& events,
                                         Settings settings)
    : state_(std::make_unique<State>(registry, events, std::move(settings))) {
  chain::start_telemetry(*state_);
}

ConfigSelectorChain::~ConfigSelectorChain() = default;

// Memory comes before the tiers of the problem: it holds what they found before, pins included.
Choice ConfigSelectorChain::select(const SelectionKey& key, ProblemRef problem,
                                   const Request& request) {
  const scopes::Scope* scope = scopes::active;
  const AutotunePolicy& policy = chain::policy_in_force(*state_, scope);
  if (request.config != nullptr || (scope != nullptr && scope->has_overlay)) {
    Call call(*state_, key, problem, request);
    if (const auto given = chain::select(*state_, call, chain::Part::kOfTheCall)) return *given;
  }
  if (const Choice* hit = find_in_memory(*state_, policy, key, problem, request)) {
    return from_memory(*hit);
  }
  Call call(*state_, key, problem, request);
  const ProfilerRange range(ProfilerRanges::kChoices,
                            [&] { return str("attune: choose for ", call.describe()); });
  return chain::select(*state_, call, chain::Part::kOfTheProblem).value();
}

Decision ConfigSelectorChain::explain(ProblemRef problem, const Request& request) {
  const SelectionKey key = selection_key(state_->registry.op(problem.op), problem, request);
  Call call(*state_, key, problem, request);
  return chain::explain(*state_, call);
}

void ConfigSelectorChain::forget(ProblemRef problem, const Request& request) {
  const SelectionKey key = selection_key(state_->registry.op(problem.op), problem, request);
  Call call(*state_, key, problem, request);
  refuse_if_frozen(*state_, "forget", call);
  state_->cache.erase(key);
  state_->store().erase(call.row_key());
}

Choice ConfigSelectorChain::retune(ProblemRef problem, const Request& request) {
  const SelectionKey key = selection_key(state_->registry.op(problem.op), problem, request);
  Call call(*state_, key, problem, request);
  refuse_if_frozen(*state_, "retune", call);
  return chain::retune(*state_, call);
}

void ConfigSelectorChain::freeze(std::optional<DatabaseContent> table) {
  state_->is_frozen = true;
  state_->store().freeze(std::move(table));
  chain::forget_choices(*state_);
}

bool ConfigSelectorChain::is_frozen() const { return state_->is_frozen; }

void ConfigSelectorChain::reload() { chain::reload(*state_, chain::Reload::kInAnyCase); }

ConfigSelectorChain::TuneReport ConfigSelectorChain::tune(ProblemRef problem,
                                                          const Request& request,
                                                          const Tuner::Settings& settings) {
  AutotunePolicy policy = chain::policy_in_force(*state_, scopes::active);
  policy.use_databases = true;
  policy.persist_autotune = true;
  const PolicyScope scope(policy);
  const SelectionKey key = selection_key(state_->registry.op(problem.op), problem, request);
  Call call(*state_, key, problem, request);
  refuse_if_frozen(*state_, "tune", call);
  return chain::tune_and_store(*state_, call, settings);
}

std::optional<ConfigRow> ConfigSelectorChain::tuned_row(ProblemRef problem,
                                                        const Request& request) {
  const SelectionKey key = selection_key(state_->registry.op(problem.op), problem, request);
  Call call(*state_, key, problem, request);
  return chain::tuned_row(*state_, call);
}

ConfigSelectorChain::Counters ConfigSelectorChain::counters() const {
  return chain::counters_of(*state_);
}

ConfigStore& ConfigSelectorChain::store() { return state_->store(); }
ConfigCache& ConfigSelectorChain::cache() { return state_->cache; }
const AutotunePolicy& ConfigSelectorChain::policy() const {
  return *state_->policy.load(std::memory_order_acquire);
}

void ConfigSelectorChain::set_policy(Policy policy) {
  // They live for ever: calls of other threads may be in the middle of one.
  static const std::array kInFull{
      AutotunePolicy::of(Policy::kTune), AutotunePolicy::of(Policy::kDb),
      AutotunePolicy::of(Policy::kHeuristic), AutotunePolicy::of(Policy::kStrict),
      AutotunePolicy::of(Policy::kStrictFresh)};
  state_->policy.store(&kInFull.at(static_cast<std::size_t>(policy)), std::memory_order_release);
}

}  // namespace attune
