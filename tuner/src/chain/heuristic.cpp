// Which kernels compete for a problem, and the default among their heuristics' configs.
#include <algorithm>
#include <cmath>
#include <limits>

#include <attune/core/error.hpp>

#include "chain/tiers.hpp"
#include "chain/within_limit.hpp"

namespace attune::chain {
namespace {

bool is_reference(const RegisteredKernel& entry) {
  return entry.at.platform.view() == kReferencePlatform;
}

/// Infinity of a kernel that cannot tell, and of one that does not know what it says.
double expected_us(const RegisteredKernel& entry, ProblemRef problem, const DeviceInfo& info) {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  const double us = entry.kernel->erased_expected_us(problem, info).value_or(kUnknown);
  return us >= 0 ? us : kUnknown;
}

/// `kernels` are sorted by priority.
void sort_by_expectation(std::vector<const RegisteredKernel*>& kernels, ProblemRef problem,
                         const DeviceInfo& info) {
  struct Ranked {
    const RegisteredKernel* entry;
    double us;
  };
  std::vector<Ranked> ranked;
  for (const RegisteredKernel* entry : kernels) {
    ranked.push_back({entry, expected_us(*entry, problem, info)});
  }
  std::ranges::stable_sort(ranked, [](const Ranked& a, const Ranked& b) {
    if (a.entry->at.priority != b.entry->at.priority) {
      return a.entry->at.priority > b.entry->at.priority;
    }
    return a.us < b.us;
  });
  std::ranges::transform(ranked, kernels.begin(), &Ranked::entry);
}

/// Why `chosen` comes before those behind it.
std::string why_first(const std::vector<const RegisteredKernel*>& kernels, std::size_t chosen,
                      const Call& call) {
  const RegisteredKernel& entry = *kernels[chosen];
  const double us = expected_us(entry, call.problem, call.info());
  const bool has_equals =
      chosen + 1 < kernels.size() && kernels[chosen + 1]->at.priority == entry.at.priority;
  if (!has_equals || std::isinf(us)) return "the best kernel by priority";
  return str("expected to be the fastest, ", std::round(10 * us) / 10, " us");
}

}  // namespace

std::vector<const RegisteredKernel*> serving(const State& state, const Call& call) {
  return state.registry.kernels(call.op.name, call.request.platform.view(),
                                call.info().id.backend.view());
}

std::vector<const RegisteredKernel*> competitors(const State& state, const Call& call,
                                                 ProblemRef problem, const DeviceInfo& info) {
  std::vector<const RegisteredKernel*> kernels = serving(state, call);
  std::erase_if(kernels, [&](const RegisteredKernel* entry) {
    return !entry->kernel->erased_supports(problem, info);
  });
  const bool others = std::any_of(kernels.begin(), kernels.end(),
                                  [](const auto* entry) { return !is_reference(*entry); });
  if (others)
    std::erase_if(kernels, [](const RegisteredKernel* entry) { return is_reference(*entry); });
  sort_by_expectation(kernels, problem, info);
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
  std::optional<Answer> quarantined;  // somebody has to compute it
  std::optional<WithinLimit> least;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    WithinLimit within = heuristic_within_limit(call, *kernels[i]->kernel);
    if (!within.reason.empty()) passed_over.push_back(within.reason);
    if (!least || within.least_bytes < least->least_bytes) least = within;
    if (!within.candidate) continue;
    const ErasedKernel& kernel = *kernels[i]->kernel;
    const Candidate& candidate = *within.candidate;
    std::optional<std::string> bad;
    if (call.policy.use_databases) {
      bad = state.store().quarantined(call.row_key(), std::string(kernel.name()), kernel.version(),
                                      to_text(kernel.params(candidate.config)));
    }
    Answer answer = Answer::chosen(Tier::kHeuristic, candidate, why_first(kernels, i, call));
    if (!bad) {
      answer.refusals = std::move(passed_over);
      return answer;
    }
    passed_over.push_back(str(describe(candidate), " is quarantined: ", *bad));
    if (!quarantined) quarantined = std::move(answer);
  }
  if (quarantined) {
    quarantined->reason += ", though every heuristic is quarantined";
    quarantined->refusals = std::move(passed_over);
    return *std::move(quarantined);
  }
  return Answer::refused("", why_none_within_limit(call, *least));
}

}  // namespace attune::chain
