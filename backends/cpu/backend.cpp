// The kernels for CPUs as one value. The device is the registry's own.
#include <attune/backends/cpu.hpp>

#include "cpu/kernels.hpp"

namespace attune::cpu {

void register_reference_kernels(Registry& registry) {
  const Placement at{.platform = kReferencePlatform, .backend = "cpu", .priority = 0};
  for (MakeKernel* const make : kReferenceKernels) registry.add(make(), at);
}

void register_simd_kernels(Registry& registry) {
  const Placement at{.platform = "simd", .backend = "cpu", .priority = 50};
  for (MakeKernel* const make : kSimdKernels) registry.add(make(), at);
}

Backend backend() {
  const auto register_kernels = [](Registry& registry) {
    register_simd_kernels(registry);
    register_reference_kernels(registry);
  };
  return {
      .name = "cpu", .register_kernels = register_kernels, .build = "CPU code: " ATTUNE_CPU_ISAS};
}

}  // namespace attune::cpu
