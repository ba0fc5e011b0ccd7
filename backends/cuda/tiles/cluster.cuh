// Clusters of thread blocks: instructions of sm_90, guarded by kHasClusters, and their launch.
// Sections are those of the PTX ISA 9.0.
//
// Numbers go from block to block by stores that a barrier of the block they go to counts. Unlike a
// release of a cluster's barrier, they wait for none of the block's other stores.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda {

#if __CUDA_ARCH__ >= 900
inline constexpr bool kHasClusters = true;
#else
inline constexpr bool kHasClusters = false;
#endif

/// A barrier of all threads of the cluster, in two parts. It orders the inits of barriers that
/// barrier_init_fence() is behind, and no other accesses. (9.7.13.3 barrier.cluster)
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait;" ::: "memory");
}

/// The address, in block `rank` of the cluster, of what this block has at `pointer`. (9.7.9.23 mapa)
__device__ __forceinline__ std::uint32_t address_in_block(const void* pointer, int rank) {
  std::uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(shared_address(pointer)), "r"(rank));
  return address;
}

/// Stores a number in a block of the cluster, whose barrier counts its bytes. (9.7.9.12 st.async)
__device__ __forceinline__ void store_async(std::uint32_t to, float x, std::uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to), "f"(x),
      "r"(barrier)
      : "memory");
}
/// Waits for the first phase of the block's own barrier, and so for what others stored.
/// (9.7.13.15.16 mbarrier.try_wait)
__device__ __forceinline__ void barrier_wait_of_cluster(SharedBarrier* barrier) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0, 0x989680;\n"
      "@!done bra again_%=;\n"
      "}" ::"r"(shared_address(barrier))
      : "memory");
}

/// Whether the code that the current device runs of the kernel has clusters: asked for once a device.
template <auto kKernel>
bool takes_clusters() {
  constexpr int kMaxDevices = 64;
  static std::array<std::atomic<int>, kMaxDevices> versions{};  // of PTX; 0 is not known yet
  int device = 0;
  check(cudaGetDevice(&device));
  std::atomic<int>& known = versions[static_cast<std::size_t>(device % kMaxDevices)];
  int version = device < kMaxDevices ? known.load(std::memory_order_relaxed) : 0;
  if (version == 0) {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, kKernel));
    version = attributes.ptxVersion;
    if (device < kMaxDevices) known.store(version, std::memory_order_relaxed);
  }
  return version >= 90;
}

/// launch() where all blocks along the grid's z are a cluster: up to 8 of them.
template <auto kKernel, class... Arguments>
void launch_clusters(const LaunchShape& shape, cudaStream_t stream, const Arguments&... arguments) {
  if (shape.shared_bytes > kDefaultSharedBytes) allow_shared_bytes<kKernel>(shape.shared_bytes);
  std::array<cudaLaunchAttribute, 2> attributes{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = 1;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = shape.grid.z;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes.data();
  config.numAttrs = shape.overlaps_previous ? 2 : 1;
  check_launch(cudaLaunchKernelEx(&config, kKernel, arguments...));
}

}  // namespace attune::cuda
