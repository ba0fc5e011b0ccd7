// validate_backward: after a forward problem was tuned, the gradients of its backward op are
// checked.
#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

#include "chain/tuning.hpp"
#include "measuring/correctness.hpp"

namespace attune::chain {
namespace {

/// The same problem for another op, field by field; fields that the other lacks are left out.
AnyProblem translate(const OpInfo& from, ProblemRef problem, const OpInfo& to) {
  Params params = parse_params(from.text(problem, false), ' ');
  std::erase_if(params, [&](const Param& param) {
    for (const FieldInfo& field : to.fields) {
      if (field.name == param.name) return false;
    }
    return true;
  });
  return to.parse(std::move(params));
}

void check_choice(State& state, Call& call, std::uint64_t seed) {
  const Answer answer = ask_heuristic(state, call);
  if (!answer.choice) return;  // a pass that no kernel computes has no wrong gradients
  const Candidate candidate{answer.choice->kernel, answer.choice->config};
  tuning::Oracle oracle(call.op, call.problem, call.device(), seed,
                        find_oracle(state.registry, call.op.name, call.device()), candidate.kernel);
  const std::optional<tuning::Verdict> verdict = oracle.check(candidate);
  if (!verdict || verdict->ok()) return;
  const std::string reason = str(to_string(verdict->outcome), ": ", verdict->reason);
  log(LogLevel::kWarning,
      str("gradients of ", call.describe(), " by ", describe(candidate), ": ", reason));
  if (call.policy.persist_autotune) quarantine(state, call.row_key(), candidate, reason);
}

}  // namespace

void validate_backward(State& state, Call& call, std::uint64_t seed) {
  const OpInfo* op = state.registry.find_op(str(call.op.kernel_op, ".backward"));
  if (op == nullptr) return;
  try {
    const AnyProblem problem = translate(call.op, call.problem, *op);
    Request request = call.request;
    request.called_as = {};
    const SelectionKey key = selection_key(*op, problem, request);
    Call backward(state, key, problem, request);
    check_choice(state, backward, seed);
  } catch (const std::exception& error) {
    log(LogLevel::kWarning,
        str("gradients of ", call.describe(), " could not be checked: ", error.what()));
  }
}

}  // namespace attune::chain
