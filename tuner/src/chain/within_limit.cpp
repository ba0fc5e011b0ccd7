#include "chain/within_limit.hpp"

#include <algorithm>
#include <utility>

#include <attune/core/count_text.hpp>
#include <attune/core/error.hpp>

namespace attune::chain {
namespace {

/// How many of the parameters differ.
std::size_t distance(const Params& a, const Params& b) {
  return static_cast<std::size_t>(std::ranges::count_if(a, [&](const Param& param) {
    const std::string* other = find_param(b, param.name);
    return other == nullptr || *other != param.value;
  }));
}

}  // namespace

WithinLimit heuristic_within_limit(Call& call, const ErasedKernel& kernel) {
  WithinLimit within;
  const auto consider = [&](const Candidate& candidate) {
    const std::size_t bytes = kernel.erased_workspace_bytes(call.problem, candidate.config);
    if (bytes >= within.least_bytes) return bytes;
    within.least_bytes = bytes;
    within.least = describe(candidate);
    return bytes;
  };
  const Candidate heuristic{&kernel, kernel.erased_heuristic(call.problem, call.info())};
  const std::string why = call.why_too_large(heuristic);
  if (why.empty()) {
    within.candidate = heuristic;
    return within;
  }
  within.reason = str(describe(heuristic), ' ', why);
  consider(heuristic);
  const Params wanted = kernel.params(heuristic.config);
  std::pair<std::size_t, std::size_t> best{};  // distance, and bytes not used
  for (const ConfigBlob& config :
       kernel.few_candidates(call.problem, call.info()).value_or(std::vector<ConfigBlob>())) {
    const Candidate candidate{&kernel, config};
    const std::size_t bytes = consider(candidate);
    if (!call.why_too_large(candidate).empty()) continue;
    const std::pair rank{distance(wanted, kernel.params(config)), kNoLimit - bytes};
    if (within.candidate && rank >= best) continue;
    best = rank;
    within.candidate = candidate;
  }
  return within;
}

std::string why_none_within_limit(const Call& call, const WithinLimit& least) {
  return str("no config that takes ", call.describe(), " keeps to a workspace of ",
             count_text(std::min<std::uint64_t>(call.request.workspace_limit,
                                                call.request.constraints.workspace_bytes),
                        "byte"),
             ": the least that would do is ", least.least_bytes, " bytes, for ", least.least);
}

}  // namespace attune::chain
