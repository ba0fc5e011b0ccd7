// Launches of the chunked backward pass with a decay for every channel. T is __nv_bfloat16 or
// __half; kD, the channels of a part, is 64 or 128.
//
// Where both sides have gates, `keys` and `values` are the same problem seen from either side.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/gla/params.hpp"

namespace attune::cuda::gla_backward {

/// What moves from the values' gates to the keys': moved [tokens of all batches, heads].
template <class T>
void launch_move_gates(const GlaBackwardParams& values, std::int64_t tokens, float* moved,
                       cudaStream_t stream);

/// The operands that enter the state and its gradient.
template <class T>
void launch_prepare(const GlaBackwardParams& params, cudaStream_t stream);

/// What goes through the states; after launch_prepare(), of both sides if both have gates.
template <class T, int kD>
void launch_state_walks(const GlaBackwardParams& params, cudaStream_t stream);
template <class T, int kD>
void launch_state_walks_of_both(const GlaBackwardParams& keys, const GlaBackwardParams& values,
                                cudaStream_t stream);

/// What stays within chunks, and every output but dinitial_state and dgamma; after the walks.
/// kMost, 64, 128 or 256, is the channels of all parts of the side with the most.
template <class T, int kMost>
void launch_pairs(const GlaBackwardParams& params, cudaStream_t stream);
template <class T, int kMost>
void launch_pairs_of_both(const GlaBackwardParams& keys, const GlaBackwardParams& values,
                          cudaStream_t stream);

/// dgamma from its parts.
void launch_sum_dgamma(const GlaBackwardParams& params, cudaStream_t stream);

}  // namespace attune::cuda::gla_backward
