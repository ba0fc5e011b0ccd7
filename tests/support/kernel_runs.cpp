#include "support/kernel_runs.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/core/executor.hpp>

namespace attune::test {
namespace {

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.view().data), tensor.bytes()};
}

/// A combination may not be compiled, or not fit.
void add_if_legal(std::vector<ConfigBlob>& configs, const KernelOnDevice& on, ProblemRef problem,
                  const Params& params) {
  try {
    const ConfigBlob config = on.kernel->parse(params);
    if (on.kernel->erased_fits(problem, on.info(), config)) configs.push_back(config);
  } catch (const InvalidArgument&) {
  }
}

}  // namespace

std::vector<KernelOnDevice> kernels_on_devices(const Registry& registry) {
  std::vector<KernelOnDevice> found;
  for (const OpInfo* const op : registry.ops()) {
    if (op->name != op->kernel_op) continue;
    for (const RegisteredKernel* const registered : registry.kernels(op->name)) {
      for (const Device* const device : registry.devices()) {
        const ShortName backend = registered->at.backend;
        if (backend != device->info().id.backend && backend != kAnyBackend) continue;
        found.push_back({op, registered->kernel.get(), device});
      }
    }
  }
  return found;
}

TensorMap oracle_outputs(const Registry& registry, const KernelOnDevice& on, ProblemRef problem,
                         std::uint64_t seed) {
  const KernelOnDevice oracle{
      on.op, registry.kernels(on.op->name, kReferencePlatform, "cpu").at(0)->kernel.get(),
      &cpu_device()};
  const std::unique_ptr<Case> inputs = on.op->make_case(problem, *oracle.device, seed);
  return run_on(*inputs, oracle, oracle.kernel->erased_heuristic(problem, oracle.info()),
                std::byte{0xff});
}

TensorMap run_on(Case& inputs, const KernelOnDevice& on, const ConfigBlob& config,
                 std::byte poison) {
  inputs.reset(poison);
  Executor::run_choice(inputs.problem(), inputs.args(), {.kernel = on.kernel, .config = config},
                       *on.device, nullptr);
  on.device->synchronize(nullptr);
  return copy_outputs(inputs, *on.device);
}

std::vector<ConfigBlob> configs_along(const KernelOnDevice& on, ProblemRef problem,
                                      const AxisInfo& axis) {
  std::vector<ConfigBlob> configs;
  const Params heuristic = on.kernel->params(on.kernel->erased_heuristic(problem, on.info()));
  for (const std::string& value : axis.values) {
    Params params = heuristic;
    for (Param& param : params) {
      if (param.name == axis.name) param.value = value;
    }
    add_if_legal(configs, on, problem, params);
  }
  return configs;
}

std::vector<ConfigBlob> configs_of(const KernelOnDevice& on, ProblemRef problem) {
  std::vector<ConfigBlob> all = on.kernel->erased_candidates(problem, on.info());
  all.push_back(on.kernel->erased_heuristic(problem, on.info()));
  for (const AxisInfo& axis : on.kernel->axes()) {
    for (const ConfigBlob& config : configs_along(on, problem, axis)) all.push_back(config);
  }
  std::vector<ConfigBlob> once;
  std::vector<Params> seen;
  for (const ConfigBlob& config : all) {
    Params params = on.kernel->params(config);
    if (std::find(seen.begin(), seen.end(), params) != seen.end()) continue;
    seen.push_back(std::move(params));
    once.push_back(config);
  }
  return once;
}

std::string first_difference(const TensorMap& a, const TensorMap& b) {
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end()) return str(name, ": missing");
    const auto left = bytes_of(tensor);
    const auto right = bytes_of(other->second);
    if (std::ranges::equal(left, right)) continue;
    const auto [at, unused] = std::ranges::mismatch(left, right);
    return str(name, ": byte ", at - left.begin());
  }
  return a.size() == b.size() ? "" : "another set of outputs";
}

}  // namespace attune::test
