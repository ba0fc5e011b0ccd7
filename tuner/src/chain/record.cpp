// What is recorded of calls that nothing was tuned for.
#include "chain/call.hpp"

namespace attune::chain {

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

}  // namespace attune::chain
