// Launches of the chunked backward pass. T is __nv_bfloat16 or __half.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/chunk_wgmma/backward/params.hpp"

namespace attune::cuda::chunk_backward {

/// What picks an instance, and how many blocks it has.
struct ChunkBackwardShape {
  int channels = 128;           // of a tile, 64 or 128: the larger of K and V, rounded up
  bool gate_gradients = false;  // whether dg or dgamma is wanted
};

/// What each segment adds to a state and to a gradient. Needed where there are several.
template <class T>
void launch_segment_states(const ChunkBackwardParams& params, const ChunkBackwardShape& shape,
                           cudaStream_t stream);

/// dq, and what the gate gradients need of the states.
template <class T>
void launch_dq_walk(const ChunkBackwardParams& params, const ChunkBackwardShape& shape,
                    cudaStream_t stream);

/// dk, dv, dinitial_state, dg and the parts of dgamma; after launch_dq_walk().
template <class T>
void launch_dkdv_walk(const ChunkBackwardParams& params, const ChunkBackwardShape& shape,
                      cudaStream_t stream);

/// dgamma from its parts.
void launch_sum_dgamma(const ChunkBackwardParams& params, std::int64_t sequences,
                       cudaStream_t stream);

}  // namespace attune::cuda::chunk_backward
