// Tuning because somebody asked for it: retune() of a program, and `attune tune`.
#include <attune/core/error.hpp>

#include "chain/tuning.hpp"
#include "measuring/measuring_lock.hpp"

namespace attune::chain {
namespace {

/// What is stored for exactly this problem, else what this process tuned before.
Candidate find_incumbent(State& state, Call& call) {
  if (const Answer row = ask_persistent(state, call); row.choice && !row.choice->bucket_hit) {
    return {row.choice->kernel, row.choice->config};
  }
  const Choice* entry = state.cache.find(call.key);
  if (entry == nullptr || entry->bucket_hit || entry->origin != Tier::kAutotune) return {};
  return {entry->kernel, entry->config};
}

Tuned tune_now(State& state, Call& call, const Tuner::Settings& settings) {
  if (call.device().is_capturing(call.request.stream)) {
    throw ExecutionError(
        str(call.called_as(), ": the stream is capturing, nothing can be tuned now"));
  }
  const MeasuringLock measuring(call.device(), state.settings.lock_folder, true, settings.stop);
  if (!measuring.held()) throw ExecutionError(str("tuning ", call.describe(), " was stopped"));
  // Whoever asks for a tuning gets it: if another process keeps the lease for longer than a tuning
  // takes, both tune.
  std::optional<Lease> lease;
  if (call.policy.persist_autotune)
    lease.emplace(state.store(), call.row_key(), settings.budget, settings.budget);
  if (call.policy.use_databases) state.store().reload_user();
  Tuned tuned = run_tuning(state, call, settings, find_incumbent(state, call));
  if (!tuned.choice)
    throw ExecutionError(
        str("tuning ", call.describe(), ": no candidate is of use:", tuned.failures()));
  if (!tuned.stopped) remember(state, call, *tuned.choice);
  if (call.policy.validate_backward) validate_backward(state, call, settings.seed);
  return tuned;
}

}  // namespace

Choice retune(State& state, Call& call) {
  Tuner::Settings settings = state.settings.tuner;
  settings.budget = call.policy.problem_budget;
  const Tuned tuned = tune_now(state, call, settings);
  if (!tuned.stopped && call.policy.persist_autotune) publish(state, tuned);
  return *tuned.choice;
}

ConfigSelectorChain::TuneReport tune_and_store(State& state, Call& call,
                                               const Tuner::Settings& settings) {
  const Tuned tuned = tune_now(state, call, settings);
  if (!tuned.stopped) {
    const std::string failure = publish(state, tuned);
    if (!failure.empty()) throw CacheError(failure);
  }
  return {tuned.result, *tuned.choice, call.row_key(), tuned.row};
}

}  // namespace attune::chain
