// Before the heuristic: what was found for the nearest problem of another bucket.
//
// Not its config as it is: how many threads or blocks are best grows with the problem, and the
// heuristic knows how. What a tuning knows better is where the heuristic was wrong, so that is what
// is taken over: the values that the neighbour's config changed from the heuristic's for the
// neighbour's own problem. On 16 cores that made the difference between 1.25 and 1.03 times the
// tuned time (bench/held_out).
#include <cmath>

#include <attune/core/error.hpp>

#include "chain_state.hpp"

namespace attune::chain {
namespace {

constexpr double kMostOctaves = 2;  // in all fields together: four times as long, say
constexpr std::size_t kMostTried = 8;

std::vector<std::string> scalable_fields(const OpInfo& op) {
  std::vector<std::string> names;
  for (const FieldInfo& field : op.fields) {
    if (field.bucket != Bucket::kExact) names.emplace_back(field.name);
  }
  return names;
}

/// The row's values that differ from what its kernel's heuristic has for the row's own problem.
/// Throws InvalidArgument for a row of another version of the op or the kernel.
Params corrections_of(const Call& call, const ErasedKernel& kernel, const ConfigRow& row) {
  const AnyProblem tuned_for = call.op.parse(parse_params(row.key.problem, ' '));
  const Params standard = kernel.params(kernel.erased_heuristic(tuned_for, call.info()));
  Params corrections = parse_params(row.config);
  std::erase_if(corrections, [&](const Param& param) {
    const std::string* value = find_param(standard, param.name);
    return value != nullptr && *value == param.value;
  });
  return corrections;
}

/// The neighbour's kernel with its corrections, or why not; `changed` is what was taken over.
Resolved resolve_neighbour(State& state, Call& call, const ConfigRow& row, std::string& changed) {
  const RegisteredKernel* entry = state.registry.find_kernel(row.kernel);
  ConfigRow transferred = row;
  if (entry != nullptr && entry->kernel->op() == call.op.kernel_op) {
    try {
      transferred.config = to_text(corrections_of(call, *entry->kernel, row));
    } catch (const InvalidArgument& error) {
      return {std::nullopt, str(row.kernel, ": ", error.what())};
    }
  }
  changed = transferred.config;
  return validate_row(state, call, transferred);
}

}  // namespace

Answer ask_neighbour(State& state, Call& call) {
  if (!call.policy.use_databases) return Answer::not_asked("the policy does not read databases");
  std::vector<ConfigStore::Hit> hits =
      state.store().find_nearest(call.row_key(), scalable_fields(call.op), kMostOctaves);
  if (hits.size() > kMostTried) hits.resize(kMostTried);
  std::vector<std::string> refusals;
  for (const ConfigStore::Hit& hit : hits) {
    std::string changed;
    const Resolved resolved = resolve_neighbour(state, call, hit.row, changed);
    if (!resolved.candidate) {
      refusals.push_back(str(hit.row.key.problem, ": ", resolved.reason));
      continue;
    }
    const std::string changes =
        changed.empty() ? "keeps the heuristic" : "changes the heuristic: " + changed;
    Answer answer = Answer::chosen(
        Tier::kHeuristic, *resolved.candidate,
        str("as the nearest tuned neighbour, ", std::round(100 * hit.octaves) / 100,
            " octaves away, ", changes, "; ", hit.row.key.problem, ": ", describe_row(hit)));
    answer.neighbour = true;
    answer.refusals = std::move(refusals);
    return answer;
  }
  Answer answer = Answer::miss(str("no tuned neighbour within ", kMostOctaves, " octaves"));
  answer.refusals = std::move(refusals);
  return answer;
}

Answer ask_fallback(State& state, Call& call) {
  Answer neighbour = ask_neighbour(state, call);
  if (neighbour.choice) return neighbour;
  Answer heuristic = ask_heuristic(state, call);
  if (!heuristic.choice) return heuristic;
  if (neighbour.outcome == TierNote::Outcome::kMiss) heuristic.reason += "; " + neighbour.reason;
  heuristic.refusals.insert(heuristic.refusals.begin(), neighbour.refusals.begin(),
                            neighbour.refusals.end());
  return heuristic;
}

}  // namespace attune::chain
