// The CUDA backend as one value. A build without nvcc has it too: it says that there is no code for
// a GPU, and reads the classes of GPUs, whose rows are checked on any machine.
#include <string>
#include <vector>

#include <attune/core/device_class.hpp>
#include <attune/core/registry.hpp>
#if ATTUNE_WITH_CUDA
#include <attune/backends/cuda.hpp>
#endif

namespace attune::cuda {
namespace {

/// The most shared memory that a block may have, by compute capability: CUDA C++ Programming Guide,
/// "Technical Specifications per Compute Capability", less the KiB that the driver keeps.
std::int64_t shared_bytes_of(std::int64_t capability) {
  constexpr std::int64_t kKiB = 1024;
  if (capability == 86 || capability == 89 || capability >= 120) return 99 * kKiB;
  return capability >= 90 ? 227 * kKiB : 163 * kKiB;
}

std::optional<DeviceInfo> describe_gpu_class(std::string_view device_class) {
  const std::vector<std::string_view> parts = split_device_class(device_class);
  DeviceInfo info;
  std::int64_t capability = 0;
  std::int64_t cores = 0;
  if (parts.size() != 5 || parts[0] != "gpu" ||
      !read_class_number(parts[1], "sm_", "", capability) || capability < 80 ||
      !read_class_number(parts[2], "", "sm", cores) || cores < 1 || cores >= 1'000'000 ||
      !read_class_size(parts[3], "l2", info.l2_bytes) ||
      !read_class_size(parts[4], "mem", info.memory_bytes)) {
    return std::nullopt;
  }
  info.id = {.backend = parts[0], .index = 0};
  info.name = device_class;
  info.device_class = device_class;
  info.arch = parts[1];
  info.features = {"sm_80"};
  if (capability >= 90) info.features.emplace_back("sm_90");
  if (capability == 90) info.features.emplace_back("sm_90a");
  info.cores = static_cast<int>(cores);
  info.l1_bytes = shared_bytes_of(capability);
  return info;
}

}  // namespace

Backend backend() {
  return {
    .name = "gpu",
#if ATTUNE_WITH_CUDA
    .register_devices = register_devices, .register_kernels = register_kernels,
    .why_no_devices = unavailable_reason, .describe_device_class = describe_gpu_class,
    .build = "GPU code: " ATTUNE_GPU_ARCHITECTURES
  };
#else
    .why_no_devices = [] { return std::string("this build has no CUDA backend"); },
    .describe_device_class = describe_gpu_class, .build = "GPU code: none"
  };
#endif
}

}  // namespace attune::cuda
