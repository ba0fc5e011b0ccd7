#include <cuda_runtime_api.h>

#include <memory>

#include <attune/backends/cuda.hpp>

#include "cuda/kernels.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/runtime/gpu_device.hpp"
#include "cuda/runtime/nvtx.hpp"

namespace attune::cuda {
namespace {

constexpr int kOldestMajor = 8;  // tensor cores that take bf16, cp.async

}  // namespace

std::string unavailable_reason() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return "";
  static_cast<void>(cudaGetLastError());  // or the host's next check would find it
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    static_cast<void>(cudaDriverGetVersion(&driver));
    if (driver == 0) return "no CUDA driver";
  }
  return status == cudaSuccess ? "no CUDA device" : cudaGetErrorString(status);
}

void register_devices(Registry& registry) {
  if (!unavailable_reason().empty()) return;
  give_nvtx_ranges();
  int count = 0;
  check(cudaGetDeviceCount(&count));
  for (int index = 0; index < count; ++index) {
    int major = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
    if (major >= kOldestMajor) registry.add(std::make_unique<const GpuDevice>(index));
  }
}

void register_kernels(Registry& registry) {
  for (const auto& [make, priority] : kKernels) {
    registry.add(make(), {.platform = "cuda", .backend = "gpu", .priority = priority});
  }
}

}  // namespace attune::cuda
