#include <algorithm>
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

std::string config_text(const ErasedKernel& kernel, const ConfigBlob& config) {
  const Params params = kernel.params(config);
  return params.empty() ? "default" : to_text(params);
}

}  // namespace attune
