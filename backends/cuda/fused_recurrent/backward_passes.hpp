// The backward pass of recurrent attention as walks, and the memory that they share.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/fused_recurrent/fused_recurrent_config.hpp"

namespace attune::cuda {

std::size_t backward_workspace_bytes(const ops::RecurrentAttentionProblem& problem,
                                     const FusedRecurrentBackwardConfig& config);

/// Queues the backward pass for an element type: float, __half or __nv_bfloat16.
template <class T>
void launch_backward(const ops::RecurrentAttentionProblem& problem,
                     const ops::RecurrentAttentionBackwardArgs& args,
                     const FusedRecurrentBackwardConfig& config, std::span<std::byte> workspace,
                     cudaStream_t stream);

}  // namespace attune::cuda
