// How the kernels of this folder walk forward, as walks/forward_walk.hpp and walks/summary_walk.hpp
// ask it.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/chunk_tf32/chunk_tf32_config.hpp"

namespace attune::cuda::chunk_tf32 {

struct ForwardWalker {
  template <class Op>
  ForwardWalker(const ops::RecurrentAttentionProblem& problem, const OneWalkConfig<Op>& config)
      : tile(config.tile()), parts(operand_parts(problem)), segments(config.segments) {}

  std::int64_t row_blocks(std::int64_t rows) const { return chunk_tf32::row_blocks(tile, rows); }
  template <class T>
  void launch(const WalkParams& params, cudaStream_t stream) const {
    launch_chunk_walk<T>(tile, parts, params, stream);
  }

  WalkTile tile;
  int parts;
  int segments;
  int tokens = kChunk;
};

}  // namespace attune::cuda::chunk_tf32
