// How blocks are numbered.
#pragma once

#include <cstdint>

#include "cuda/walks/walk.hpp"

namespace attune::cuda {

/// Blocks are numbered along the grid's x, and along y beyond what x takes.
inline constexpr std::int64_t kMaxBlocksInX = std::int64_t{1} << 30;

inline dim3 grid_of(std::int64_t blocks) {
  return {static_cast<unsigned>(blocks < kMaxBlocksInX ? blocks : kMaxBlocksInX),
          static_cast<unsigned>(ceil_div(blocks, kMaxBlocksInX))};
}
__device__ __forceinline__ std::int64_t block_number() {
  return static_cast<std::int64_t>(blockIdx.y) * kMaxBlocksInX + blockIdx.x;
}

}  // namespace attune::cuda
