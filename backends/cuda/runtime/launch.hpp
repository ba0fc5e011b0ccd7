// Launching kernels.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "cuda/runtime/check.hpp"

namespace attune::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  // dynamic
  /// The kernel calls dependency_wait() before it touches what the launch before it writes, and so
  /// may start while that one still runs (programmatic dependent launch).
  bool overlaps_previous = false;
};

/// What a block may have without being asked for.
inline constexpr std::size_t kDefaultSharedBytes = 48 * 1024;

/// Lets kKernel have more dynamic shared memory than the default on the current device.
template <auto kKernel>
void allow_shared_bytes(std::size_t bytes) {
  constexpr int kMaxDevices = 64;
  static std::array<std::atomic<std::size_t>, kMaxDevices> allowed{};
  int device = 0;
  check(cudaGetDevice(&device));
  const auto at = static_cast<std::size_t>(device % kMaxDevices);
  if (device < kMaxDevices && allowed[at].load(std::memory_order_relaxed) >= bytes) return;
  check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)));
  allowed[at].store(bytes, std::memory_order_relaxed);
}

/// Queues kKernel(arguments...) on a stream of the current device. An empty grid is no launch.
template <auto kKernel, class... Arguments>
void launch(const LaunchShape& shape, cudaStream_t stream, const Arguments&... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  if (shape.shared_bytes > kDefaultSharedBytes) allow_shared_bytes<kKernel>(shape.shared_bytes);
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = shape.overlaps_previous ? 1 : 0;
  check_launch(cudaLaunchKernelEx(&config, kKernel, arguments...));
}

}  // namespace attune::cuda
