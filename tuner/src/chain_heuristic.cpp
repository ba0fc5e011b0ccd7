// The heuristic tier, and which kernels compete at all.
#include <algorithm>

#include <attune/core/error.hpp>

#include "chain_state.hpp"

namespace attune::chain {
namespace {

bool is_reference(const RegisteredKernel& entry) {
  return entry.at.platform.view() == kReferencePlatform;
}

}  // namespace

std::vector<const RegisteredKernel*> serving(const State& state, const Call& call) {
  return state.registry.kernels(call.op.name, call.request.platform.view(),
                                call.info().id.backend.view());
}

std::vector<const RegisteredKernel*> competitors(const State& state, const Call& call) {
  std::vector<const RegisteredKernel*> kernels = serving(state, call);
  std::erase_if(kernels, [&](const RegisteredKernel* entry) {
    return !entry->kernel->erased_supports(call.problem, call.info());
  });
  const bool others = std::any_of(kernels.begin(), kernels.end(),
                                  [](const auto* entry) { return !is_reference(*entry); });
  if (others)
    std::erase_if(kernels, [](const RegisteredKernel* entry) { return is_reference(*entry); });
  return kernels;
}

std::string why_unsupported(const State& state, const Call& call) {
  const auto kernels = serving(state, call);
  if (kernels.empty()) {
    return str("no kernel of ", call.op.name, " is registered for platform ", call.request.platform,
               " on ", call.info().id);
  }
  std::string text = str("no kernel takes ", call.describe(), ":");
  for (const RegisteredKernel* entry : kernels) {
    text += str("\n  ", entry->kernel->name(), ": ",
                entry->kernel->erased_supports(call.problem, call.info()).reason());
  }
  return text;
}

Answer ask_heuristic(State& state, Call& call) {
  const std::vector<const RegisteredKernel*> kernels = competitors(state, call);
  if (kernels.empty()) return Answer::refused("", why_unsupported(state, call));
  std::vector<std::string> passed_over;
  for (const RegisteredKernel* entry : kernels) {
    const ErasedKernel& kernel = *entry->kernel;
    const Candidate candidate{&kernel, kernel.erased_heuristic(call.problem, call.info())};
    std::optional<std::string> bad;
    if (call.policy.use_databases) {
      bad = state.store().quarantined(call.row_key(), std::string(kernel.name()), kernel.version(),
                                      to_text(kernel.params(candidate.config)));
    }
    if (!bad) {
      Answer answer = Answer::chosen(Tier::kHeuristic, candidate, "the best kernel by priority");
      answer.refusals = std::move(passed_over);
      return answer;
    }
    passed_over.push_back(str(describe(candidate), " is quarantined: ", *bad));
  }
  // Everything is quarantined. Somebody still has to compute it.
  const ErasedKernel& kernel = *kernels.front()->kernel;
  Answer answer = Answer::chosen(
      Tier::kHeuristic, {&kernel, kernel.erased_heuristic(call.problem, call.info())},
      "the best kernel by priority, though every heuristic is quarantined");
  answer.refusals = std::move(passed_over);
  return answer;
}

}  // namespace attune::chain
