// The memory tier: which remembered choices answer, and what is remembered.
#include <mutex>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

#include "chain/tiers.hpp"

namespace attune::chain {

bool is_final(const Choice& entry, const AutotunePolicy& policy) {
  if (entry.stale && !policy.allow_stale) return false;
  if (entry.origin != Tier::kHeuristic) return true;
  if (!policy.allow_heuristics || policy.cache_miss_fallback == AutotunePolicy::Miss::kError)
    return false;
  if (policy.use_databases && entry.tier < Tier::kPersistent) return false;
  return entry.tier >= Tier::kAutotune || !may_tune(policy);
}

const Choice* find_remembered(const State& state, const SelectionKey& key, ProblemRef problem,
                              const Request& request) {
  const Choice* entry = state.cache.find(key);
  if (request.workspace_limit == kNoLimit) return entry;
  if (entry != nullptr &&
      entry->kernel->erased_workspace_bytes(problem, entry->config) <= request.workspace_limit) {
    return entry;
  }
  SelectionKey with_limit = key;
  with_limit.workspace_limit = request.workspace_limit;
  return state.cache.find(with_limit);
}

Answer ask_memory(State& state, Call& call) {
  const Choice* entry = find_remembered(state, call.key, call.problem, call.request);
  if (entry == nullptr) return Answer::miss("not met before in this process");
  const Candidate candidate{entry->kernel, entry->config};
  if (!is_final(*entry, call.policy)) {
    Answer answer = Answer::miss(str("only a heuristic is remembered: ", describe(candidate)));
    answer.config = describe(candidate);
    return answer;
  }
  Answer answer = Answer::chosen(Tier::kMemory, candidate,
                                 str("remembered from the ", to_string(entry->origin), " tier"));
  answer.choice->origin = entry->origin;
  answer.choice->bucket_hit = entry->bucket_hit;
  answer.choice->stale = entry->stale;
  return answer;
}

void remember(State& state, Call& call, const Choice& choice) {
  Choice entry = choice;
  SelectionKey key = call.memory_key();
  if (choice.origin == Tier::kAutotune) {
    key = call.key;
    if (const Answer pin = ask_pin(state, call); pin.choice) entry = *pin.choice;
  }
  // Find and put under one lock: a heuristic must not replace what another thread tuned meanwhile.
  const std::lock_guard lock(state.remembering);
  if (call.generation != state.generation.load(std::memory_order_relaxed)) return;
  if (entry.origin == Tier::kHeuristic) {
    // The cache keeps replaced entries for as long as it lives, so nothing is put that is not new.
    const Choice* known = state.cache.find(key);
    if (known != nullptr && (known->origin != Tier::kHeuristic || known->tier >= entry.tier))
      return;
  }
  state.cache.put(key, entry);
}

void forget_choices(State& state) {
  const std::lock_guard lock(state.remembering);
  state.generation.fetch_add(1, std::memory_order_release);
  state.cache.clear();
}

void reload(State& state, Reload when) {
  if (state.is_frozen) return;
  const std::vector<std::string> changed = state.store().reload();
  if (changed.empty() && when == Reload::kWhenRowsDiffer) return;
  forget_choices(state);
  ++state.counters.reloads;
  std::string text = changed.empty() ? "databases were read again, and hold what they held"
                                     : "databases hold other rows than before:";
  for (const std::string& file : changed) text += ' ' + file;
  log(LogLevel::kInfo, text);
  Event event;
  event.kind = EventKind::kReloaded;
  event.reason = text;
  state.events.emit(event);
}

}  // namespace attune::chain
