#include <cuda_runtime_api.h>

#include <attune/core/error.hpp>

#include "cuda/runtime/check.hpp"
#include "cuda/runtime/gpu_device.hpp"

namespace attune::cuda {
namespace {

std::string version_text(int version) {  // 13000 is 13.0
  return str(version / 1000, '.', version % 1000 / 10);
}

std::string driver_text() {
  int driver = 0;
  int runtime = 0;
  check(cudaDriverGetVersion(&driver));
  check(cudaRuntimeGetVersion(&runtime));
  return str("CUDA driver ", version_text(driver), ", toolkit ", version_text(runtime));
}

/// Architectures whose machine code the GPU runs and this build may carry. sm_90a is for 9.0 alone.
std::vector<std::string> features_of(const cudaDeviceProp& properties) {
  std::vector<std::string> features{"sm_80"};
  if (properties.major >= 9) features.emplace_back("sm_90");
  if (ATTUNE_CUDA_HAS_SM90A != 0 && properties.major == 9 && properties.minor == 0) {
    features.emplace_back("sm_90a");
  }
  return features;
}

/// "uuid:GPU-8b1ff2...", as nvidia-smi shows it: the same whatever CUDA_VISIBLE_DEVICES says.
std::string uuid_feature(const cudaUUID_t& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "uuid:GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

std::int64_t signed_bytes(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

}  // namespace

DeviceInfo read_gpu_info(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index));
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  DeviceInfo info;
  info.id = {.backend = "gpu", .index = index};
  info.name = properties.name;
  info.arch = str("sm_", properties.major, properties.minor);
  info.features = features_of(properties);
  info.features.push_back(uuid_feature(properties.uuid));
  info.cores = properties.multiProcessorCount;
  info.l1_bytes = signed_bytes(properties.sharedMemPerBlockOptin);
  info.l2_bytes = properties.l2CacheSize;
  info.memory_bytes = signed_bytes(properties.totalGlobalMem);
  info.driver = driver_text();
  // Memory rounded to GiB: what a driver reserves of it differs a little.
  info.device_class = str("gpu:", info.arch, ':', info.cores, "sm:l2=", info.l2_bytes >> 20,
                          "M:mem=", (info.memory_bytes + kGiB / 2) / kGiB, 'G');
  return info;
}

}  // namespace attune::cuda
