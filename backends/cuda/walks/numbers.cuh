// How blocks and checkpoints are numbered.
#pragma once

#include <cstdint>

#include "cuda/chunks/views.cuh"
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

/// The number of a sequence's first checkpoint. Those of different sequences do not overlap, unless
/// the sequences do.
__device__ __forceinline__ std::int64_t first_checkpoint(const SequencesView& sequences,
                                                         std::int64_t n, const SequenceSpan& span,
                                                         std::int64_t interval) {
  return sequences.bounds != nullptr ? span.begin / interval + n
                                     : n * (sequences.tokens / interval + 1);
}

}  // namespace attune::cuda
