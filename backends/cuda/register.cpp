#include <cuda_runtime_api.h>

#include <memory>

#include <attune/backends/cuda.hpp>

#include "cuda/kernels.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/runtime/gpu_device.hpp"

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
  int count = 0;
  check(cudaGetDeviceCount(&count));
  for (int index = 0; index < count; ++index) {
    int major = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
    if (major >= kOldestMajor) registry.add(std::make_unique<const GpuDevice>(index));
  }
}

void register_kernels(Registry& registry) {
  const auto at = [](int priority) {
    return Placement{.platform = "cuda", .backend = "gpu", .priority = priority};
  };
  registry.add(make_chunk_wgmma(), at(30));
  registry.add(make_chunk_mma(), at(20));
  registry.add(make_gla_wgmma(), at(30));
  registry.add(make_gla_mma(), at(20));
  registry.add(make_fused_recurrent(), at(10));
  registry.add(make_chunk_backward(), at(30));
  registry.add(make_gla_backward(), at(30));
  registry.add(make_fused_recurrent_backward(), at(10));
  registry.add(make_decode(), at(10));
}

}  // namespace attune::cuda
