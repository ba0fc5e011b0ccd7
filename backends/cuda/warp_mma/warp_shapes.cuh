// Which instance of a kernel of warps a problem takes, and how its warps are numbered.
#pragma once

#include "cuda/runtime/dispatch.hpp"
#include "cuda/walks/numbers.cuh"
#include "cuda/warp_mma/chunks.cuh"

namespace attune::cuda::warp_mma {

inline constexpr int kThreads = kWarps * kWarpSize;

/// Blocks of all segments.
inline dim3 blocks_of(const Params& params) {
  return grid_of(ceil_div(params.parts * params.heads, kWarps));
}
__device__ __forceinline__ std::int64_t warp_number() {
  return block_number() * kWarps + threadIdx.x / kWarpSize;
}

/// Blocks that the registers of a multiprocessor are divided among.
template <class Shape>
inline constexpr int kResidentBlocks = [] {
  constexpr bool kGates = Shape::kKeyGates || Shape::kValueGates;
  constexpr bool kBoth = Shape::kKeyGates && Shape::kValueGates;
  constexpr bool kSplit = kIsSplit<typename Shape::T>;
  if (Shape::kWidth > 16) return kGates || kSplit ? 2 : 3;
  return kBoth || kSplit ? 3 : 4;
}();

/// The memory of the thread's warp.
template <class Ring>
__device__ __forceinline__ std::uint32_t warp_memory() {
  extern __shared__ __align__(16) std::byte shared_memory[];
  return shared_address(shared_memory) + threadIdx.x / kWarpSize * Ring::kBytes;
}

template <class T, class F>
void with_shape(const Params& params, F&& f) {
  with_value_of<kWidths>(params.width(), [&]<int kWidth>() {
    with_value<Gated::kNone, Gated::kKeys, Gated::kValues, Gated::kBoth>(
        params.gated(),
        [&]<Gated kGated>() { f.template operator()<WarpShape<T, kWidth, kGated>>(); });
  });
}

}  // namespace attune::cuda::warp_mma
