// The forms of a call, whatever its name: allocating, into given tensors, and as a plan.
#pragma once

#include <attune/ops/recurrent_attention.hpp>

#include "attention/attention_rules.hpp"

namespace attune::ops {

using ForwardCall = AttentionCall<RecurrentAttention>;
using BackwardCall = AttentionCall<RecurrentAttentionBackward>;

RecurrentAttentionResult run_forward(ForwardCall call, const CallOptions& options);
void run_forward_into(const RecurrentAttentionOutputs& out, ForwardCall call,
                      const CallOptions& options);
Plan<RecurrentAttention> plan_forward(ForwardCall call, const CallOptions& options);
Plan<RecurrentAttention> plan_forward_into(const RecurrentAttentionOutputs& out, ForwardCall call,
                                           const CallOptions& options);
RecurrentAttentionArgs forward_args(const RecurrentAttentionOutputs& out, ForwardCall call);

/// The gradient of the constant decay is dg_gamma, also where it came from slopes.
RecurrentAttentionGradients run_backward(BackwardCall call,
                                         const RecurrentAttentionOutputGradients& gradients,
                                         const CallOptions& options);
void run_backward_into(const RecurrentAttentionGradientOutputs& out, BackwardCall call,
                       const RecurrentAttentionOutputGradients& gradients,
                       const CallOptions& options);
Plan<RecurrentAttentionBackward> plan_backward(BackwardCall call,
                                               const RecurrentAttentionOutputGradients& gradients,
                                               const CallOptions& options);
Plan<RecurrentAttentionBackward> plan_backward_into(
    const RecurrentAttentionGradientOutputs& out, BackwardCall call,
    const RecurrentAttentionOutputGradients& gradients, const CallOptions& options);
RecurrentAttentionBackwardArgs backward_args(const RecurrentAttentionGradientOutputs& out,
                                             BackwardCall call,
                                             const RecurrentAttentionOutputGradients& gradients);

}  // namespace attune::ops
