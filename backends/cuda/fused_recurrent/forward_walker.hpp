// How the kernels of this folder walk forward, as walks/forward_walk.hpp and walks/summary_walk.hpp
// ask it.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/fused_recurrent/fused_recurrent_config.hpp"

namespace attune::cuda::fused_recurrent {

struct ForwardWalker {
  template <class Op>
  explicit ForwardWalker(const OneWalkConfig<Op>& config)
      : shape(config.shape()), segments(config.segments), tokens(config.tokens) {}

  std::int64_t row_blocks(std::int64_t rows) const {
    return fused_recurrent::row_blocks(shape, rows);
  }
  template <class T>
  void launch(const WalkParams& params, cudaStream_t stream) const {
    launch_walk<T>(shape, params, stream);
  }

  WalkShape shape;
  int segments;
  int tokens;
};

}  // namespace attune::cuda::fused_recurrent
