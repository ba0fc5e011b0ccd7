// The narrow ones of wgmma.cuh's products, for sums that leave room in the registers. (PTX ISA 9.0,
// 9.7.15.5.2 wgmma.mma_async)
#pragma once

#include "cuda/tiles/wgmma.cuh"

namespace attune::cuda {

#if ATTUNE_SM90A_CODE

/// d [64, 32] = a [64, 16] b [16, 32], plus d where `accumulate`; a in registers.
template <class T, Major kB>
__device__ __forceinline__ void wgmma_n32(float (&d)[16], const std::uint32_t (&a)[4],
                                          std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.%23.%23 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, p, 1, 1, %22;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)),
        "n"(static_cast<int>(kB)), "C"(PtxName<T>::kValue));
}

/// The same with a in shared memory.
template <class T, Major kA, Major kB>
__device__ __forceinline__ void wgmma_n32(float (&d)[16], std::uint64_t a, std::uint64_t b,
                                          bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.%21.%21 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "%16, %17, p, 1, 1, %19, %20;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(static_cast<int>(kA)),
        "n"(static_cast<int>(kB)), "C"(PtxName<T>::kValue));
}

#endif

}  // namespace attune::cuda
