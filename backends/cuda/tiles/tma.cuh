// Instructions of sm_90: barriers in shared memory, the bulk copy engine (TMA), stmatrix. Sections
// are those of the PTX ISA 9.0.
//
// Code that uses them is guarded by __CUDA_ARCH__ >= 900 inside of the kernel's body. Never guard a
// kernel's definition: its host stub must exist in every pass.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/tiles/ptx.cuh"

/// Defined as 1 by the CMake option of this name: every lane arrives for itself.
/// compute-sanitizer's racecheck does not follow what __syncwarp() orders, and so takes what other
/// lanes wrote before a single arrival for a race. It costs up to a tenth of a kernel's time.
#ifndef ATTUNE_RACECHECK
#define ATTUNE_RACECHECK 0
#endif

namespace attune::cuda {

/// A barrier in shared memory that counts arrivals and bytes. (9.7.13.15 mbarrier)
using SharedBarrier = std::uint64_t;

__device__ __forceinline__ void barrier_init(SharedBarrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
/// Makes the inits before it visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(SharedBarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
/// Arrives, and makes the barrier wait for `bytes` more.
__device__ __forceinline__ void barrier_arrive_expecting(SharedBarrier* barrier,
                                                         std::uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
/// Waits for the end of the phase with this parity (0 for a barrier's first).
__device__ __forceinline__ void barrier_wait(SharedBarrier* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 0x989680;\n"
      "@!done bra again_%=;\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// Arrivals of one warp_arrive(): a barrier waits for this many times its warps.
inline constexpr int kWarpArrivals = ATTUNE_RACECHECK ? kWarpSize : 1;

/// One arrival for a warp, after all of its lanes got here.
__device__ __forceinline__ void warp_arrive_once(SharedBarrier* barrier) {
  __syncwarp();
  if (threadIdx.x % kWarpSize == 0) barrier_arrive(barrier);
}

/// kWarpArrivals of them.
__device__ __forceinline__ void warp_arrive(SharedBarrier* barrier) {
  if constexpr (kWarpArrivals == 1) {
    warp_arrive_once(barrier);
  } else {
    barrier_arrive(barrier);
  }
}

/// Loads a box of a tensor of rank 4 at the given coordinates, innermost first; elements outside of
/// the tensor become 0. (9.7.9.27.1.2 cp.async.bulk.tensor)
__device__ __forceinline__ void tensor_load(std::uint32_t to, const CUtensorMap* map,
                                            SharedBarrier* barrier, int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
/// Stores a box; elements outside of the tensor are left out.
__device__ __forceinline__ void tensor_store(const CUtensorMap* map, std::uint32_t from, int x,
                                             int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          map),
      "r"(from), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
__device__ __forceinline__ void tensor_map_prefetch(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Copies contiguous bytes, a multiple of 16 at addresses that are. (9.7.9.25.4 cp.async.bulk)
__device__ __forceinline__ void bulk_load(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          SharedBarrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
__device__ __forceinline__ void bulk_store(void* to, std::uint32_t from, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Waits until at most kPending of this thread's store groups still read shared memory.
template <int kPending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
/// Waits until at most kPending of them are under way at all.
template <int kPending>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Orders this thread's ordinary accesses of shared memory before later ones of the copy engine and
/// of wgmma. Goes before the barrier that hands the memory over. (9.7.13.4 membar, fence)
__device__ __forceinline__ void async_proxy_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Programmatic dependent launch: waits for the launch before this one; lets the next one start.
/// (9.7.13.13 griddepcontrol)
__device__ __forceinline__ void dependency_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void dependents_launch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// Both, where the architecture has them: nothing that the launch before this wrote may be read
/// earlier, and from here on the launch after this may start.
__device__ __forceinline__ void take_over_from_previous_launch() {
#if __CUDA_ARCH__ >= 900
  dependency_wait();
  dependents_launch();
#endif
}

/// The reverse of load_matrices. (9.7.14.5.16 stmatrix)
__device__ __forceinline__ void store_matrices(std::uint32_t row_address, std::uint32_t m0,
                                               std::uint32_t m1, std::uint32_t m2,
                                               std::uint32_t m3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
      "r"(m0), "r"(m1), "r"(m2), "r"(m3)
      : "memory");
}
__device__ __forceinline__ void store_matrices_transposed(std::uint32_t row_address,
                                                          std::uint32_t m0, std::uint32_t m1,
                                                          std::uint32_t m2, std::uint32_t m3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
      "r"(m0), "r"(m1), "r"(m2), "r"(m3)
      : "memory");
}

}  // namespace attune::cuda
