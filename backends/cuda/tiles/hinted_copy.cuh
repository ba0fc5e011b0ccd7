// Copies to shared memory by threads, with a policy of the L2 cache. Sections are those of the PTX
// ISA 9.0.
#pragma once

#include <cstdint>

namespace attune::cuda {

/// Copies 16 bytes, or writes 16 zero bytes where `valid` is false, of a group that
/// copy_async_commit() ends. (9.7.9.25.3 cp.async)
__device__ __forceinline__ void copy_async_16(std::uint32_t to, const void* from, bool valid,
                                              std::uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
               "l"(from), "r"(valid ? 16 : 0), "l"(policy)
               : "memory");
}

}  // namespace attune::cuda
