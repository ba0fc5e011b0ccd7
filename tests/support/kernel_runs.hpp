// Running registered kernels on cases, knowing of an op no more than its OpInfo.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <attune/core/case.hpp>
#include <attune/core/registry.hpp>

namespace attune::test {

/// A kernel on one of the devices it stands for.
struct KernelOnDevice {
  const OpInfo* op = nullptr;
  const ErasedKernel* kernel = nullptr;
  const Device* device = nullptr;

  const DeviceInfo& info() const { return device->info(); }
  friend std::ostream& operator<<(std::ostream& out, const KernelOnDevice& on) {
    return out << on.kernel->name() << " on " << on.info().id;
  }
};

/// Every kernel of a registry on every device there is.
std::vector<KernelOnDevice> kernels_on_devices(const Registry& registry);

/// What the oracle computes for the case that `on.op` makes of `problem` and `seed`.
TensorMap oracle_outputs(const Registry& registry, const KernelOnDevice& on, ProblemRef problem,
                         std::uint64_t seed);

/// Outputs of a run that found them filled with `poison`.
TensorMap run_on(Case& inputs, const KernelOnDevice& on, const ConfigBlob& config,
                 std::byte poison);

/// Candidates, and the heuristic with each value of each axis in turn; what fits, once each.
std::vector<ConfigBlob> configs_of(const KernelOnDevice& on, ProblemRef problem);

/// The heuristic's config with one axis replaced, for all values that the axis has and that fit.
std::vector<ConfigBlob> configs_along(const KernelOnDevice& on, ProblemRef problem,
                                      const AxisInfo& axis);

/// "o: byte 17" where two runs' outputs differ first, "" when they are the same bits.
std::string first_difference(const TensorMap& a, const TensorMap& b);

}  // namespace attune::test
