#include <attune/backends/all.hpp>
#include <attune/backends/cpu.hpp>
#if ATTUNE_WITH_CUDA
#include <attune/backends/cuda.hpp>
#endif

namespace attune {

void register_backends(Registry& registry) {  // the only list of backends
#if ATTUNE_WITH_CUDA
  cuda::register_devices(registry);
  cuda::register_kernels(registry);
#endif
  cpu::register_simd_kernels(registry);
  cpu::register_reference_kernels(registry);
}

std::string why_no_gpu() {
#if ATTUNE_WITH_CUDA
  return cuda::unavailable_reason();
#else
  return "this build has no CUDA backend";
#endif
}

}  // namespace attune
