#include "chain/explain.hpp"

#include <attune/core/error.hpp>

namespace attune::chain {
namespace {

Answer would_tune(const State& state, const Call& call, bool settled) {
  if (std::string why = why_not_tune(state, call); !why.empty())
    return Answer::not_asked(std::move(why));
  if (settled) return Answer::not_asked("an earlier tier answers");
  if (has_one_candidate(state, call)) return Answer::not_asked("there is one candidate only");
  return Answer::not_asked(str("select would tune now, for at most ",
                               call.policy.problem_budget.count(),
                               " ms; what stands below is what it would use if it could not"));
}

/// Collects one note a tier; the first tier that answers decides.
class Explanation {
 public:
  void add(Tier tier, const Answer& answer) {
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
    if (settled()) {
      note.outcome = TierNote::Outcome::kNotAsked;
      note.reason =
          answer.choice ? str("would give ", answer.config, ": ", note.reason) : note.reason;
    } else if (answer.choice) {
      decision_.choice = answer.choice;
    }
    decision_.notes.push_back(std::move(note));
  }

  void fail(std::string error) {
    if (!settled()) decision_.error = std::move(error);
  }

  bool settled() const { return decision_.choice.has_value() || !decision_.error.empty(); }
  Decision take() { return std::move(decision_); }

 private:
  Decision decision_;
};

Answer heuristic_by_policy(State& state, Call& call) {
  Answer answer = ask_fallback(state, call);
  if (!answer.choice) return answer;
  if (call.policy.allow_heuristics &&
      call.policy.cache_miss_fallback != AutotunePolicy::Miss::kError)
    return answer;
  return Answer::refused(answer.config,
                         str("the policy allows no heuristic; it would give ", answer.config));
}

/// What rows say, and of a miss, which rows of the problem are for others.
Answer persistent_in_full(State& state, Call& call) {
  Answer answer = ask_persistent(state, call);
  if (answer.choice || !call.policy.use_databases) return answer;
  for (const ConfigStore::Hit& hit : state.store().find_elsewhere(call.row_key())) {
    answer.outranked.push_back(str(describe_row(hit), ", for device class ",
                                   hit.row.key.device_class, " and platform ",
                                   hit.row.key.platform));
  }
  return answer;
}

}  // namespace

Decision explain(State& state, Call& call) {
  Explanation explanation;
  const Answer given = ask_override(state, call);
  explanation.add(Tier::kOverride, given);
  if (given.outcome == TierNote::Outcome::kRefused) explanation.fail(given.reason);
  explanation.add(Tier::kOverlay, ask_overlay(state, call));
  explanation.add(Tier::kPin, ask_pin(state, call));
  explanation.add(Tier::kMemory, ask_memory(state, call));
  explanation.add(Tier::kPersistent, persistent_in_full(state, call));
  explanation.add(Tier::kAutotune, would_tune(state, call, explanation.settled()));
  const Answer heuristic = heuristic_by_policy(state, call);
  explanation.add(Tier::kHeuristic, heuristic);
  explanation.fail(heuristic.reason);
  return explanation.take();
}

}  // namespace attune::chain
