#include <attune/backends/all.hpp>
#include <attune/backends/cpu.hpp>

namespace attune {

void register_backends(Registry& registry) {  // the only list of backends
  cpu::register_simd_kernels(registry);
  cpu::register_reference_kernels(registry);
}

}  // namespace attune
