// The host's kernels as one value. Its device is the registry's own.
#include <attune/backends/cpu.hpp>

namespace attune::cpu {

Backend backend() {
  return {.name = "cpu", .register_kernels = [](Registry& registry) {
            register_simd_kernels(registry);
            register_reference_kernels(registry);
          }};
}

}  // namespace attune::cpu
