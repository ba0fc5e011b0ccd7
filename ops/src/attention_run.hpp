// The forms of a call, whatever its name: allocating, into given tensors, and as a plan.
#pragma once

#include <attune/ops/recurrent_attention.hpp>

#include "attention_call.hpp"

namespace attune::ops {

RecurrentAttentionResult run_forward(const AttentionInputs& inputs, bool want_final_state,
                                     const CallOptions& call);
void run_forward_into(const RecurrentAttentionOutputs& out, const AttentionInputs& inputs,
                      const CallOptions& call);
Plan<RecurrentAttention> plan_forward(const AttentionInputs& inputs, bool want_final_state,
                                      const CallOptions& call);
RecurrentAttentionArgs forward_args(const RecurrentAttentionOutputs& out,
                                    const AttentionInputs& inputs);

/// The gradient of the constant decay is dg_gamma, also where it came from slopes.
RecurrentAttentionGradients run_backward(const AttentionInputs& inputs,
                                         const RecurrentAttentionOutputGradients& gradients,
                                         const CallOptions& call);
void run_backward_into(const RecurrentAttentionGradientOutputs& out, const AttentionInputs& inputs,
                       const RecurrentAttentionOutputGradients& gradients, const CallOptions& call);
Plan<RecurrentAttentionBackward> plan_backward(const AttentionInputs& inputs,
                                               const RecurrentAttentionOutputGradients& gradients,
                                               const CallOptions& call);
RecurrentAttentionBackwardArgs backward_args(const RecurrentAttentionGradientOutputs& out,
                                             const AttentionInputs& inputs,
                                             const RecurrentAttentionOutputGradients& gradients);

}  // namespace attune::ops
