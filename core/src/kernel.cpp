#include <algorithm>
#include <limits>
#include <stdexcept>

#include <attune/core/error.hpp>
#include <attune/core/kernel.hpp>

namespace attune {

Support ErasedKernel::erased_supports(ProblemRef problem, const DeviceInfo& device) const {
  if (problem.needed == nullptr)
    throw std::logic_error("a ProblemRef that ProblemRef::of() did not make");
  const std::vector<std::string_view> known = features();
  std::string missing;
  for (const std::string& feature : problem.needed(problem.problem)) {
    if (std::find(known.begin(), known.end(), feature) != known.end()) continue;
    missing += (missing.empty() ? "" : ", ") + feature;
  }
  if (!missing.empty()) return Support::no(refused::kFeature, "lacks the feature " + missing);
  return ask_supports(problem, device);
}

namespace {

// A walk over a space ends after this many values of axes: some milliseconds.
constexpr std::uint64_t kMostSteps = 200'000;

}  // namespace

std::optional<std::vector<ConfigBlob>> ErasedKernel::few_candidates(
    ProblemRef problem, const DeviceInfo& device) const {
  std::vector<ConfigBlob> configs = erased_list(problem, device);
  if (!configs.empty()) return configs;
  const bool all = visit_points(space(), problem.problem, kMostSteps, [&](const ConfigBlob& point) {
    if (erased_fits(problem, device, point)) configs.push_back(point);
    return configs.size() <= kFewCandidates;
  });
  if (!all) return std::nullopt;
  return configs;
}

std::vector<ConfigBlob> ErasedKernel::erased_candidates(ProblemRef problem,
                                                        const DeviceInfo& device) const {
  std::vector<ConfigBlob> configs = erased_list(problem, device);
  if (!configs.empty()) return configs;
  constexpr auto kNoLimit = std::numeric_limits<std::uint64_t>::max();
  visit_points(space(), problem.problem, kNoLimit, [&](const ConfigBlob& point) {
    if (erased_fits(problem, device, point)) configs.push_back(point);
    return true;
  });
  return configs;
}

CandidateCount ErasedKernel::candidate_count(ProblemRef problem, const DeviceInfo& device) const {
  if (const auto few = few_candidates(problem, device)) return {few->size(), true};
  CandidateCount count = count_points(space(), problem.problem, kMostSteps);
  count.is_exact = false;  // the kernel may refuse some of them
  return count;
}

std::string config_text(const ErasedKernel& kernel, const ConfigBlob& config) {
  const Params params = kernel.params(config);
  return params.empty() ? "default" : to_text(params);
}

}  // namespace attune
