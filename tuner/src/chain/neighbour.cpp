// The heuristic tier: a problem that nobody tuned is served as the nearest tuned neighbour, else as
// it was tuned for another number of threads, else by the default.
//
// What is best changes in steps: where a round of blocks is full, where a state leaves a cache,
// where a kernel begins to split sequences. The kernels' heuristics know those steps, and what they
// get wrong on one side of a step a tuning there does not tell about the other side. So a row
// serves another problem only where the heuristic takes the same kernel for both; an axis for which
// it takes another value lies across a step and is left to it (ADR 0028). And what a tuning there
// gained by little is left alone, as it is as likely to lose here (bench/notes/tuning.md).
#include <cmath>

#include <attune/core/error.hpp>

#include "chain/tiers.hpp"

namespace attune::chain {
namespace {

constexpr double kMostOctaves = 2;  // in all fields together: four times as long, say
constexpr double kLeastGain = 1.05;
constexpr std::size_t kMostTried = 8;

std::vector<std::string> scalable_fields(const OpInfo& op) {
  std::vector<std::string> names;
  for (const FieldInfo& field : op.fields) {
    if (field.bucket != Bucket::kExact) names.emplace_back(field.name);
  }
  return names;
}

/// What the heuristic tier has for a problem; nothing when no kernel takes it.
std::optional<Candidate> default_for(const State& state, const Call& call, ProblemRef problem) {
  const std::vector<const RegisteredKernel*> kernels =
      competitors(state, call, problem, call.info());
  if (kernels.empty()) return std::nullopt;
  const ErasedKernel& kernel = *kernels.front()->kernel;
  return Candidate{&kernel, kernel.erased_heuristic(problem, call.info())};
}

/// The row without the axes in which two configs of its kernel differ: what a row does not name is
/// as the heuristic has it.
Transfer without_differences(const ConfigRow& row, const Params& there, const Params& here) {
  Transfer transfer{.why_not = "", .row = row, .left = ""};
  Params params = parse_params(row.config);
  std::erase_if(params, [&](const Param& param) {
    const std::string* a = find_param(there, param.name);
    const std::string* b = find_param(here, param.name);
    const bool differs = (a == nullptr) != (b == nullptr) || (a != nullptr && *a != *b);
    if (differs) transfer.left += (transfer.left.empty() ? "" : ", ") + param.name;
    return differs;
  });
  transfer.row.config = to_text(params);
  return transfer;
}

bool is_worth_a_transfer(const ConfigRow& row) {
  return row.median_us <= 0 || row.default_us <= 0 || row.default_us >= kLeastGain * row.median_us;
}

Answer ask_neighbour(State& state, Call& call) {
  if (!call.policy.use_databases) return Answer::not_asked("the policy does not read databases");
  std::vector<ConfigStore::Hit> hits =
      state.store().find_nearest(call.row_key(), scalable_fields(call.op), kMostOctaves);
  if (hits.size() > kMostTried) hits.resize(kMostTried);
  std::vector<std::string> refusals;
  for (const ConfigStore::Hit& hit : hits) {
    const std::string& of = hit.row.key.problem;
    const Transfer transfer = transferred(state, call, hit.row);
    if (!transfer.why_not.empty()) {
      refusals.push_back(str(of, ": ", transfer.why_not));
      continue;
    }
    const Resolved resolved = validate_row(state, call, transfer.row);
    if (!resolved.candidate) {
      refusals.push_back(str(of, ": ", resolved.reason));
      continue;
    }
    const std::string distance =
        str("the nearest tuned neighbour, ", std::round(100 * hit.octaves) / 100, " octaves away");
    Answer answer = Answer::miss(str(distance, ", gained less than 5 %: ", of));
    if (is_worth_a_transfer(hit.row)) {
      answer = Answer::chosen(
          Tier::kHeuristic, *resolved.candidate,
          str("as ", distance, "; ", of, ": ", describe_row(hit), describe_left(transfer)));
      answer.neighbour = true;
    }
    answer.refusals = std::move(refusals);
    return answer;
  }
  Answer answer = Answer::miss(str("no tuned neighbour within ", kMostOctaves, " octaves"));
  answer.refusals = std::move(refusals);
  return answer;
}

/// The neighbour's config, or the default's.
Answer ask_fallback(State& state, Call& call) {
  Answer neighbour = ask_neighbour(state, call);
  if (neighbour.choice) return neighbour;
  Answer other_cores = ask_other_cores(state, call);
  if (other_cores.choice) return other_cores;
  neighbour.refusals.insert(neighbour.refusals.end(), other_cores.refusals.begin(),
                            other_cores.refusals.end());
  Answer heuristic = ask_heuristic(state, call);
  if (!heuristic.choice) return heuristic;
  if (neighbour.outcome == TierNote::Outcome::kMiss) heuristic.reason += "; " + neighbour.reason;
  heuristic.refusals.insert(heuristic.refusals.begin(), neighbour.refusals.begin(),
                            neighbour.refusals.end());
  return heuristic;
}

/// Why what was not tuned for the problem must not serve a request that bounds the error, or "".
std::string why_error_is_unknown(const Call& call, const Answer& answer) {
  const double most = call.request.constraints.error;
  if (!call.request.constraints.bounds_error()) return "";
  return str("the error of ", answer.config, " is not known to be at most ", most, " for ",
             call.describe(), "; tune it with: attune tune ", call.called_as(), ' ',
             call.op.text(call.problem, false), " --max-error ", most);
}

bool may_use_heuristic(const AutotunePolicy& policy) {
  return policy.allow_heuristics && policy.cache_miss_fallback != AutotunePolicy::Miss::kError;
}

}  // namespace

Transfer transferred(const State& state, const Call& call, const ConfigRow& row) {
  try {
    const AnyProblem tuned_for = call.op.parse(parse_params(row.key.problem, ' '));
    const std::optional<Candidate> there = default_for(state, call, tuned_for);
    const std::optional<Candidate> here = default_for(state, call, call.problem);
    const std::string text_there = there ? describe(*there) : "nothing";
    const std::string text_here = here ? describe(*here) : "nothing";
    if (text_there == text_here) return {.why_not = "", .row = row, .left = ""};
    const bool one_kernel = there && here && there->kernel == here->kernel;
    if (one_kernel && here->kernel->name() == row.kernel) {
      return without_differences(row, here->kernel->params(there->config),
                                 here->kernel->params(here->config));
    }
    return {.why_not = str("the heuristic takes ", text_there, " there, and ", text_here, " here"),
            .row = {},
            .left = ""};
  } catch (const InvalidArgument& error) {  // a row of another version of the op
    return {.why_not = error.what(), .row = {}, .left = ""};
  }
}

std::string describe_left(const Transfer& transfer) {
  return transfer.left.empty() ? "" : str("; the heuristic's own here: ", transfer.left);
}

std::vector<Candidate> nearest_configs(State& state, Call& call) {
  std::vector<Candidate> configs;
  if (!call.policy.use_databases) return configs;
  for (const ConfigStore::Hit& hit :
       state.store().find_nearest(call.row_key(), scalable_fields(call.op), kMostOctaves)) {
    if (configs.size() == kMostTried) break;
    if (const Resolved resolved = validate_row(state, call, hit.row); resolved.candidate)
      configs.push_back(*resolved.candidate);
  }
  return configs;
}

Answer select_heuristic(State& state, Call& call) {
  Answer answer = ask_fallback(state, call);
  if (!answer.choice) throw Unsupported(answer.reason);
  if (const std::string why = why_error_is_unknown(call, answer); !why.empty()) throw NotTuned(why);
  Choice remembered = *answer.choice;
  // Where stale rows were refused, another policy may find one.
  const bool asked_all = call.policy.use_databases && call.policy.allow_stale;
  remembered.tier = asked_all ? Tier::kPersistent : Tier::kMemory;
  // No tuning will follow: it would find again what needs too much.
  if (asked_all && call.is_tuned_above_limit) remembered.tier = Tier::kAutotune;
  remember(state, call, remembered);
  const std::string& why_not_tuned = call.previous_reason;
  if (!may_use_heuristic(call.policy)) {
    throw NotTuned(str(
        "no tuned config is known for ", call.describe(), " and the policy allows no other (",
        call.why_no_row, call.why_no_row.empty() ? "" : "; ", why_not_tuned,
        "); tune it with: attune tune ", call.called_as(), " ", call.op.text(call.problem, false)));
  }
  if (!why_not_tuned.empty()) answer.reason += "; " + why_not_tuned;
  return answer;
}

Answer explain_heuristic(State& state, Call& call) {
  Answer answer = ask_fallback(state, call);
  if (answer.choice) {
    if (std::string why = why_error_is_unknown(call, answer); !why.empty()) {
      answer = Answer::refused(answer.config, std::move(why));
    }
  }
  if (answer.choice && !may_use_heuristic(call.policy)) {
    answer = Answer::refused(answer.config,
                             str("the policy allows no heuristic; it would give ", answer.config));
  }
  answer.is_error = !answer.choice;
  return answer;
}

}  // namespace attune::chain
