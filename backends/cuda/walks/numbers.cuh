// How blocks are numbered, and quotients of such numbers.
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

/// a / b in 32 bits, which must hold both: in 64 it takes ten times as long.
__device__ __forceinline__ std::int64_t small_quotient(std::int64_t a, std::int64_t b) {
  return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
}
/// a / b of numbers that are not negative, in 32 bits where these hold both.
__device__ __forceinline__ std::int64_t quotient(std::int64_t a, std::int64_t b) {
  return ((a | b) >> 32) == 0 ? small_quotient(a, b) : a / b;
}

}  // namespace attune::cuda
