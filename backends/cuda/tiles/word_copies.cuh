// Copies of a word or two to shared memory, of tensors whose rows start at no multiple of 16 bytes.
#pragma once

#include "cuda/tiles/ptx.cuh"

namespace attune::cuda {

/// Copies 4 bytes, or writes 4 zero bytes where `valid` is false; copy_async_wait() waits for it.
/// (PTX ISA 9.0, 9.7.9.25.3 cp.async)
__device__ __forceinline__ void copy_async_4(std::uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 4 : 0)
               : "memory");
}
/// The same of 8 bytes, at multiples of 8.
__device__ __forceinline__ void copy_async_8(std::uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 8 : 0)
               : "memory");
}

}  // namespace attune::cuda
