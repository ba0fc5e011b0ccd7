// The tiers of the chain, each by what it answers, and what several of them need.
//
// A new tier is an enumerator of Tier (attune/core/selection.hpp), its function here and its entry
// in the array of tiers.cpp: select(), explain(), counters and events follow from the array.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chain/call.hpp"

namespace attune::chain {

/// Which part of the chain is asked.
enum class Part {
  kOfTheCall,     // a config that comes with the call, or that a scope puts around it
  kOfTheProblem,  // what is known, or can be found out, of the problem
};

/// Asks the tiers of one part in turn and delivers the first answer: counted, recorded, told to the
/// events, and put in memory where that is right. Nothing when no tier has one, which only the part
/// of the call may come to. Throws what ConfigSelector::select() throws.
std::optional<Choice> select(State& state, Call& call, Part part);

/// What select() would do for a call, and what every tier has to say. Changes nothing.
Decision explain(State& state, Call& call);

ConfigSelectorChain::Counters counters_of(const State& state);

// What tiers answer, in order. None of these changes anything.
Answer ask_override(State& state, Call& call);  // refused: is_error
Answer ask_overlay(State& state, Call& call);
Answer ask_pin(State& state, Call& call);
Answer ask_memory(State& state, Call& call);
Answer ask_persistent(State& state, Call& call);
Answer ask_heuristic(State& state, Call& call);

// What a tier does in select() besides, and what explain() says of it.
Answer select_override(State& state, Call& call);     // throws InvalidArgument in place of is_error
Answer select_pin(State& state, Call& call);          // tells of a pin that cannot be followed
Answer select_persistent(State& state, Call& call);   // tells of rows that are refused
Answer explain_persistent(State& state, Call& call);  // of a miss: with the rows of other devices
/// Tunes, where the call allows it and nobody else does; then memory or a row may have the answer.
Answer select_autotune(State& state, Call& call);
Answer explain_autotune(State& state, Call& call);
/// What serves a problem that nobody tuned: as the nearest tuned neighbour, else the default. Lives
/// in memory alone and hides no later row or tuning. Throws Unsupported, and NotTuned where the
/// policy wants neither.
Answer select_heuristic(State& state, Call& call);
Answer explain_heuristic(State& state, Call& call);

/// A candidate, or why a name does not give one.
struct Resolved {
  std::optional<Candidate> candidate;
  std::string reason;
};

/// The candidate that a named config stands for: its kernel is there and may serve the request, the
/// parameters parse, the config fits, and it needs no more scratch memory than it may.
Resolved resolve(const State& state, Call& call, const NamedConfig& named);

/// The same with the config as text, as rows have it.
Resolved resolve_row(const State& state, Call& call, const std::string& kernel,
                     const std::string& config);

/// The same for a row that was measured: it also competes, and is not quarantined.
Resolved validate_row(State& state, Call& call, const ConfigRow& row);

/// The row of this very problem that makes measuring unnecessary: it may be used and is not stale.
std::optional<ConfigRow> tuned_row(State& state, Call& call);

/// "a user row of FILE, noise grade A, 1.3 times as fast as the default".
std::string describe_row(const ConfigStore::Hit& hit);

/// What of the row of a near problem holds for this one.
struct Transfer {
  std::string why_not;  // "" where the row may serve
  ConfigRow row;        // without the axes that are left to the heuristic
  std::string left;     // which these are: "prefetch, stream"; "" for none
};
/// The heuristic knows at what sizes what is best changes. Where it takes another kernel for the
/// two problems the row does not serve; an axis for which it takes another value keeps that of the
/// heuristic here.
Transfer transferred(const State& state, const Call& call, const ConfigRow& row);
/// "; the heuristic's own here: prefetch", or "".
std::string describe_left(const Transfer& transfer);

/// As this very problem was tuned on the same CPU for another number of threads, the nearest first;
/// a miss without a reason where it was not.
Answer ask_other_cores(State& state, Call& call);

/// What the nearest problems were tuned to that this one may use too, the nearest first.
std::vector<Candidate> nearest_configs(State& state, Call& call);

/// Kernels that may serve a request: of its op, platform and backend. Throws Unavailable for an
/// unknown platform.
std::vector<const RegisteredKernel*> serving(const State& state, const Call& call);

/// Kernels that compete for a problem on a device like `info`, the default first: by priority, then
/// by the time they expect, then in the order of registration. The reference is among them only
/// when nothing else supports the problem, or when the request is for its platform.
std::vector<const RegisteredKernel*> competitors(const State& state, const Call& call,
                                                 ProblemRef problem, const DeviceInfo& info);
inline std::vector<const RegisteredKernel*> competitors(const State& state, const Call& call) {
  return competitors(state, call, call.problem, call.info());
}

/// Every kernel that may serve the request, and why it does not take the problem.
std::string why_unsupported(const State& state, const Call& call);

/// Whether the default is all there is to try, so that measuring could change nothing.
bool has_one_candidate(const State& state, const Call& call);

/// Whether a policy tunes, and this process has tuning time left.
bool may_tune(const AutotunePolicy& policy);

/// Whether a remembered choice answers without asking any other tier.
bool is_final(const Choice& remembered, const AutotunePolicy& policy);

/// What the choice's kernel needs to run it, where it is one that prepares: made now unless it was
/// before, and kept with the choice in memory. Throws what its prepare() throws, and ExecutionError
/// when that would have to happen while the call's stream is capturing.
void prepare(State& state, Call& call, Choice& choice);

enum class Reload {
  kInAnyCase,
  kWhenRowsDiffer,  // memory is left as it is when no file holds other rows
};
/// Takes up what the databases hold by now, and empties memory of what it has from before. Calls
/// that began before then put nothing into memory any more. Does not throw CacheError.
void reload(State& state, Reload when);

/// Empties memory: each problem's next call selects anew.
void forget_choices(State& state);

/// Puts a choice in memory under Call::memory_key(), and what the problem was tuned to, or the pin
/// where there is one, under its key without a limit; nothing when memory was emptied since the
/// call began.
void remember(State& state, Call& call, const Choice& choice);

/// What is remembered for a call: under its key, or where that needs more than the call's limit,
/// under its key with the limit. Null when nothing is. Takes no lock and allocates nothing.
const Choice* find_remembered(const State& state, const SelectionKey& key, ProblemRef problem,
                              const Request& request);

}  // namespace attune::chain
