#include "chain/tiers.hpp"

#include <algorithm>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

namespace attune::chain {
namespace {

using Counters = ConfigSelectorChain::Counters;

struct TierEntry {
  Tier tier;
  Answer (*select)(State&, Call&);
  Answer (*explain)(State&, Call&) = nullptr;  // null: as select, which then changes nothing
  std::uint64_t Counters::*counter = nullptr;  // of its answers
  Part part = Part::kOfTheProblem;
  /// It reads databases: asked once for a problem that they do not know, and what it finds is
  /// remembered. (The autotune and heuristic tiers say themselves what is to be remembered.)
  bool in_databases = false;
};

/// In the order of asking. Memory answers most calls before any of them: see
/// ConfigSelectorChain::select().
constexpr std::array<TierEntry, kTierCount> kTiers{{
    {.tier = Tier::kOverride,
     .select = select_override,
     .explain = ask_override,
     .counter = &Counters::overrides,
     .part = Part::kOfTheCall},
    {.tier = Tier::kOverlay,
     .select = ask_overlay,
     .counter = &Counters::overlays,
     .part = Part::kOfTheCall},
    {.tier = Tier::kPin,
     .select = select_pin,
     .explain = ask_pin,
     .counter = &Counters::pins,
     .in_databases = true},
    {.tier = Tier::kMemory, .select = ask_memory},
    {.tier = Tier::kPersistent,
     .select = select_persistent,
     .explain = explain_persistent,
     .counter = &Counters::persistent_hits,
     .in_databases = true},
    {.tier = Tier::kAutotune, .select = select_autotune, .explain = explain_autotune},
    {.tier = Tier::kHeuristic,
     .select = select_heuristic,
     .explain = explain_heuristic,
     .counter = &Counters::heuristics},
}};

constexpr std::size_t index_of(Tier tier) { return static_cast<std::size_t>(tier); }

static_assert(std::ranges::all_of(kTiers,
                                  [](const TierEntry& entry) {
                                    return &entry == &kTiers[index_of(entry.tier)];
                                  }),
              "an entry a tier, in the order of the enumerators");

/// Whether the databases were asked about a problem before, and had nothing.
bool is_unknown_to_databases(const State& state, const Call& call) {
  const Choice* known = state.cache.find(call.key);
  return known != nullptr && known->origin == Tier::kHeuristic && known->tier >= Tier::kPersistent;
}

/// Counts a call in the recording when nothing was tuned for it and tuning could change that.
void record(State& state, Call& call, const Answer& answer) {
  const Choice& choice = *answer.choice;
  if (state.recorder == nullptr || !(answer.stale || is_untuned(choice))) return;
  if (choice.origin == Tier::kHeuristic && has_one_candidate(state, call)) return;
  state.recorder->count(call.key, [&]() -> RecordedCall {
    const RowKey& key = call.row_key();
    const char* text = choice.bucket_hit  ? "bucket"
                       : answer.stale     ? "stale"
                       : answer.neighbour ? "neighbour"
                                          : "heuristic";
    return {key.op, key.problem, key.device_class, key.platform, text};
  });
}

void emit_selected(State& state, Call& call, const Answer& answer) {
  const Choice& choice = *answer.choice;
  const std::string config = config_text(*choice.kernel, choice.config);
  Event event = call.event(EventKind::kSelected, choice.tier);
  event.kernel = choice.kernel->name();
  event.version = choice.kernel->version();
  event.config = config;
  event.reason = answer.reason;
  state.events.emit(event);
}

/// What select() gives for an answer. Its tier may be another than the one that was asked: before
/// it tunes, the autotune tier looks again at memory and rows.
Choice deliver(State& state, Call& call, const Answer& answer) {
  const Choice& choice = *answer.choice;
  const TierEntry& entry = kTiers[index_of(choice.tier)];
  ++state.counters.answers[index_of(choice.tier)];
  if (answer.stale) ++state.counters.stale_hits;
  if (choice.bucket_hit && choice.tier == Tier::kPersistent) ++state.counters.bucket_hits;
  if (entry.in_databases) remember(state, call, choice);
  if (choice.tier != Tier::kMemory) record(state, call, answer);
  if (state.events.active()) emit_selected(state, call, answer);
  if (log_level() <= LogLevel::kDebug && choice.tier != Tier::kMemory) {
    log(LogLevel::kDebug,
        str(call_label(call.op.name, choice, call.row_key().problem), " takes ", answer.config,
            " from the ", to_string(choice.tier), " tier: ", answer.reason));
  }
  return choice;
}

/// Whether a stored or tuned choice can be run, once its kernel has prepared. What cannot, as where
/// another compiler is installed, is passed over: the tiers below serve the call. Throws where
/// there are none, or for a config that the caller named.
bool is_prepared(State& state, Call& call, const TierEntry& entry, Answer& answer) {
  try {
    prepare(state, call, *answer.choice);
    return true;
  } catch (const DeviceFault&) {
    throw;
  } catch (const std::exception& error) {
    const bool is_last = entry.part == Part::kOfTheCall || entry.tier == Tier::kHeuristic;
    if (is_last || call.device().is_capturing(call.request.stream)) throw;
    answer.reason = str(answer.choice->kernel->name(), " cannot prepare it: ", error.what());
    log(LogLevel::kWarning, str(call.describe(), ": the choice of the ", to_string(entry.tier),
                                " tier is passed over: ", answer.reason));
    state.cache.erase(call.memory_key());
    return false;
  }
}

/// One note a tier; the first that answers, or is an error, decides.
void add_note(Decision& decision, Tier tier, const Answer& answer) {
  TierNote note;
  note.tier = tier;
  note.outcome = answer.outcome;
  note.config = answer.config;
  note.reason = answer.reason;
  for (const std::string& refusal : answer.refusals) {
    if (answer.choice || note.reason.find(refusal) == std::string::npos)
      note.reason += "; passed over: " + refusal;
  }
  for (const std::string& row : answer.outranked) note.reason += "; not used: " + row;
  if (decision.choice || !decision.error.empty()) {
    note.outcome = TierNote::Outcome::kNotAsked;
    if (answer.choice) note.reason = str("would give ", answer.config, ": ", note.reason);
  } else if (answer.choice) {
    decision.choice = answer.choice;
  } else if (answer.is_error) {
    decision.error = answer.reason;
  }
  decision.notes.push_back(std::move(note));
}

}  // namespace

std::optional<Choice> select(State& state, Call& call, Part part) {
  std::optional<Answer> stale;  // to be tuned again, and good enough where that is not possible
  for (const TierEntry& entry : kTiers) {
    if (entry.part != part) continue;
    if (entry.in_databases && is_unknown_to_databases(state, call)) continue;
    Answer answer = entry.select(state, call);
    if (answer.choice && answer.is_to_be_tuned_again) {
      stale = std::move(answer);
      continue;
    }
    if (!answer.choice && stale && entry.tier == Tier::kAutotune) answer = *std::move(stale);
    if (answer.choice && is_prepared(state, call, entry, answer)) {
      return deliver(state, call, answer);
    }
    if (entry.tier == Tier::kPersistent && answer.outcome == TierNote::Outcome::kRefused) {
      call.why_no_row = answer.reason;
    }
    call.previous_reason = std::move(answer.reason);
  }
  return std::nullopt;
}

Decision explain(State& state, Call& call) {
  Decision decision;
  for (const TierEntry& entry : kTiers) {
    call.is_answered = decision.choice.has_value() || !decision.error.empty();
    add_note(decision, entry.tier, (entry.explain ? entry.explain : entry.select)(state, call));
  }
  return decision;
}

Counters counters_of(const State& state) {
  Counters counters;
  counters.tunings = state.counters.tunings;
  counters.stale_hits = state.counters.stale_hits;
  counters.bucket_hits = state.counters.bucket_hits;
  counters.refused_rows = state.counters.refused_rows;
  counters.tuning_us = state.counters.tuning_us;
  counters.reloads = state.counters.reloads;
  for (const TierEntry& entry : kTiers) {
    if (entry.counter) counters.*entry.counter = state.counters.answers[index_of(entry.tier)];
  }
  return counters;
}

}  // namespace attune::chain
