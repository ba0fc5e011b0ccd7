// Plans of a call over ranks, whatever its name (attention_run.hpp).
#pragma once

#include <attune/ops/distributed_attention.hpp>

#include "attention/attention_run.hpp"

namespace attune::ops::distributed {

SequencePlan<RecurrentAttention> plan_forward(const ForwardCall& call, const CallOptions& options,
                                              const SequenceLayout& layout,
                                              attune::distributed::Exchange& exchange);
SequencePlan<RecurrentAttentionBackward> plan_backward(
    BackwardCall call, const RecurrentAttentionOutputGradients& gradients,
    const CallOptions& options, const SequenceLayout& layout,
    attune::distributed::Exchange& exchange);

}  // namespace attune::ops::distributed
