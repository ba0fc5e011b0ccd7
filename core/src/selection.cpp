#include <attune/core/error.hpp>
#include <attune/core/prepared_kernel.hpp>
#include <attune/core/selection.hpp>

namespace attune {

const Prepared* Choice::prepare(ProblemRef problem, const Device& device) const {
  if (prepared != nullptr) return prepared;
  return kernel->erased_prepare(problem, config, {device, no_artifacts()});
}

std::string_view to_string(Tier tier) {
  switch (tier) {
    case Tier::kOverride:
      return "override";
    case Tier::kOverlay:
      return "overlay";
    case Tier::kPin:
      return "pin";
    case Tier::kMemory:
      return "memory";
    case Tier::kPersistent:
      return "persistent";
    case Tier::kAutotune:
      return "autotune";
    case Tier::kHeuristic:
      return "heuristic";
  }
  return "?";
}

NamedConfig NamedConfig::parse(std::string_view text) {
  NamedConfig named;
  named.params = parse_params(text, ',');
  std::erase_if(named.params, [&](const Param& param) {
    if (param.name != "kernel") return false;
    named.kernel = param.value;
    return true;
  });
  return named;
}

SelectionKey selection_key(const OpInfo& op, ProblemRef problem, const Request& request) {
  return {.op = op.id,
          .device = request.device,
          .platform = request.platform,
          .most_workspace = request.constraints.workspace_bytes,
          .most_error = std::bit_cast<std::uint64_t>(request.constraints.error),
          .problem = op.values(problem)};
}

}  // namespace attune
