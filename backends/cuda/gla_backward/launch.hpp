// Launches of the chunked backward pass with a decay for every channel. T is __nv_bfloat16 or
// __half.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/gla_backward/params.hpp"

namespace attune::cuda::gla_backward {

/// The operands that enter the state and its gradient. kD, the channels of a tile, is 64 or 128.
template <class T, int kD>
void launch_prepare(const GlaBackwardParams& params, cudaStream_t stream);

/// What goes through the states; after launch_prepare().
template <class T, int kD>
void launch_state_walks(const GlaBackwardParams& params, cudaStream_t stream);

/// What stays within chunks, and every output but dinitial_state and dgamma; after
/// launch_state_walks().
template <class T, int kD>
void launch_pairs(const GlaBackwardParams& params, cudaStream_t stream);

/// dgamma from its parts.
void launch_sum_dgamma(const GlaBackwardParams& params, cudaStream_t stream);

}  // namespace attune::cuda::gla_backward
