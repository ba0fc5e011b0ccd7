// PTX instructions of sm_80 that C++ has no name for, one function each. Sections are those of the
// PTX ISA 9.0.
#pragma once

#include <cstdint>

#include "cuda/tiles/element.cuh"

namespace attune::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullWarp = 0xffffffffU;
inline constexpr float kLog2E = 1.4426950408889634F;

/// The address of shared memory as instructions take it.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// blockIdx.x, read anew by each call: what was made of it need not stay in registers. (10.4
/// %ctaid)
__device__ __forceinline__ unsigned block_index() {
  unsigned index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

/// 2^x to 2 ulp, denormals flushed; 2^-inf is 0. (9.7.3.21 ex2)
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// How long the L2 cache keeps what an access with this policy touches. (9.7.9.18 createpolicy)
__device__ __forceinline__ std::uint64_t policy_evict_first() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ std::uint64_t policy_evict_normal() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// Past the L1 cache, for what is read once. The address is a multiple of 16. (9.7.9.8 ld)
__device__ __forceinline__ float4 load_float4(const float* from, std::uint64_t policy) {
  float4 x;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(from), "l"(policy)
               : "memory");
  return x;
}
/// (9.7.9.11 st)
__device__ __forceinline__ void store_float4(float* to, const float4& x, std::uint64_t policy) {
  asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to), "f"(x.x),
               "f"(x.y), "f"(x.z), "f"(x.w), "l"(policy)
               : "memory");
}

/// Asks the L2 cache for the line of an address. (9.7.9.15 prefetch)
__device__ __forceinline__ void prefetch_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

/// As many as the GPU has, or a few more. (10.9 %nsmid)
__device__ __forceinline__ unsigned multiprocessors() {
  unsigned count;
  asm("mov.u32 %0, %%nsmid;" : "=r"(count));
  return count;
}

/// The place of a byte of row `row` in a tile of 128-byte rows whose 16-byte chunks are swizzled as
/// the bulk tensor copy's SWIZZLE_128B does: eight rows then fall into different banks.
__device__ __forceinline__ constexpr std::uint32_t swizzled(std::uint32_t row, std::uint32_t byte) {
  return row * 128U + (byte ^ ((row & 7U) << 4));
}

/// Copies 16 bytes, or writes 16 zero bytes where `valid` is false. (9.7.9.25.3 cp.async)
__device__ __forceinline__ void copy_async_16(std::uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most kPending of this thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Four 8 x 8 matrices of 16-bit elements, whose rows' addresses lanes 0-7, 8-15, 16-23 and 24-31
/// give. (9.7.14.5.15 ldmatrix)
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], std::uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row_address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&to)[4],
                                                         std::uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row_address)
               : "memory");
}

/// An 8 x 8 matrix of 16-bit elements over a warp, transposed. (9.7.14.5.17 movmatrix)
__device__ __forceinline__ std::uint32_t transpose_matrix(std::uint32_t matrix) {
  std::uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(matrix));
  return transposed;
}

/// Ordinary accesses of shared memory by its address. (9.7.9.8 ld, 9.7.9.11 st)
__device__ __forceinline__ uint4 load_shared_16(std::uint32_t from) {
  uint4 loaded;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(loaded.x), "=r"(loaded.y), "=r"(loaded.z), "=r"(loaded.w)
               : "r"(from)
               : "memory");
  return loaded;
}
__device__ __forceinline__ void store_shared_16(std::uint32_t to, const uint4& x) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z),
               "r"(x.w)
               : "memory");
}
__device__ __forceinline__ void store_shared_4(std::uint32_t to, std::uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}

/// d += a b for a 16 x 16, b 16 x 8, d 16 x 8 over a warp. (9.7.14.5.14 mma)
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.%10.%10.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "C"(PtxName<T>::kValue));
}

/// A barrier of `threads` threads of the block. Ids are constants: a run-time id reserves all 16.
/// (9.7.13.1 barrier)
template <int kId>
__device__ __forceinline__ void named_barrier_sync(int threads) {
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "r"(threads) : "memory");
}
template <int kId>
__device__ __forceinline__ void named_barrier_arrive(int threads) {
  asm volatile("bar.arrive %0, %1;" ::"n"(kId), "r"(threads) : "memory");
}

/// A barrier of `threads` threads that tells whether any of them says so. (9.7.13.1 barrier.red)
template <int kId>
__device__ __forceinline__ bool named_barrier_any(int threads, bool says) {
  int any;
  asm volatile(
      "{\n"
      ".reg .pred own, some;\n"
      "setp.ne.s32 own, %1, 0;\n"
      "barrier.cta.red.or.pred some, %2, %3, own;\n"
      "selp.s32 %0, 1, 0, some;\n"
      "}"
      : "=r"(any)
      : "r"(static_cast<int>(says)), "n"(kId), "r"(threads)
      : "memory");
  return any != 0;
}

/// A barrier of all threads of the block, whose warps may each be at a call of their own, where
/// __syncthreads() would have to be the same call for all. (9.7.13.1 barrier; without .aligned, as
/// the PTX ISA asks for where not all threads execute the same instruction)
template <int kId>
__device__ __forceinline__ void block_barrier_sync() {
  asm volatile("barrier.sync %0;" ::"n"(kId) : "memory");
}

}  // namespace attune::cuda
