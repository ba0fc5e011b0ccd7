// The launch of the dq walk.
#pragma once

#include "cuda/chunk_wgmma/backward/dq_walk.cuh"
#include "cuda/chunk_wgmma/backward/launch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_backward {

template <class T, int kD, bool kGateGradients>
void launch_dq_instance(const ChunkBackwardParams& params, cudaStream_t stream) {
  launch<dq_walk<T, kD, kGateGradients>>({.grid = dim3(static_cast<unsigned>(params.walks)),
                                          .block = dim3(Roles<kD>::kThreads),
                                          .shared_bytes = sizeof(DqShared<kD, kGateGradients>),
                                          .overlaps_previous = true},
                                         stream, params);
}

template <class T>
void launch_dq_walk(const ChunkBackwardParams& params, const ChunkBackwardShape& shape,
                    cudaStream_t stream) {
  if (shape.channels == 64) {
    shape.gate_gradients ? launch_dq_instance<T, 64, true>(params, stream)
                         : launch_dq_instance<T, 64, false>(params, stream);
  } else {
    shape.gate_gradients ? launch_dq_instance<T, 128, true>(params, stream)
                         : launch_dq_instance<T, 128, false>(params, stream);
  }
}

}  // namespace attune::cuda::chunk_backward
