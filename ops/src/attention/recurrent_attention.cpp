#include <attune/ops/recurrent_attention.hpp>

#include "attention/attention_run.hpp"
#include "distributed/distributed_run.hpp"

namespace attune::ops {
namespace {

ForwardCall forward(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
                    const RecurrentAttentionOptions& options) {
  return attention_call<RecurrentAttention>(RecurrentAttention::kName, q, k, v, options);
}

BackwardCall backward(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
                      const RecurrentAttentionOptions& options) {
  using Op = RecurrentAttentionBackward;
  return attention_call<Op>(Op::kName, q, k, v, options);
}

}  // namespace

RecurrentAttentionResult recurrent_attention(const ConstTensorView& q, const ConstTensorView& k,
                                             const ConstTensorView& v,
                                             const RecurrentAttentionOptions& options) {
  return run_forward(forward(q, k, v, options), options.call);
}

void recurrent_attention_into(const RecurrentAttentionOutputs& out, const ConstTensorView& q,
                              const ConstTensorView& k, const ConstTensorView& v,
                              const RecurrentAttentionOptions& options) {
  run_forward_into(out, forward(q, k, v, options), options.call);
}

Plan<RecurrentAttention> plan_recurrent_attention(const ConstTensorView& q,
                                                  const ConstTensorView& k,
                                                  const ConstTensorView& v,
                                                  const RecurrentAttentionOptions& options) {
  return plan_forward(forward(q, k, v, options), options.call);
}

Plan<RecurrentAttention> plan_recurrent_attention(const RecurrentAttentionOutputs& out,
                                                  const ConstTensorView& q,
                                                  const ConstTensorView& k,
                                                  const ConstTensorView& v,
                                                  const RecurrentAttentionOptions& options) {
  return plan_forward_into(out, forward(q, k, v, options), options.call);
}

RecurrentAttentionArgs recurrent_attention_args(const RecurrentAttentionOutputs& out,
                                                const ConstTensorView& q, const ConstTensorView& k,
                                                const ConstTensorView& v,
                                                const RecurrentAttentionOptions& options) {
  return forward_args(out, forward(q, k, v, options));
}

RecurrentAttentionGradients recurrent_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const RecurrentAttentionOptions& options) {
  return run_backward(backward(q, k, v, options), gradients, options.call);
}

void recurrent_attention_backward_into(const RecurrentAttentionGradientOutputs& out,
                                       const ConstTensorView& q, const ConstTensorView& k,
                                       const ConstTensorView& v,
                                       const RecurrentAttentionOutputGradients& gradients,
                                       const RecurrentAttentionOptions& options) {
  run_backward_into(out, backward(q, k, v, options), gradients, options.call);
}

Plan<RecurrentAttentionBackward> plan_recurrent_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const RecurrentAttentionOptions& options) {
  return plan_backward(backward(q, k, v, options), gradients, options.call);
}

Plan<RecurrentAttentionBackward> plan_recurrent_attention_backward(
    const RecurrentAttentionGradientOutputs& out, const ConstTensorView& q,
    const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const RecurrentAttentionOptions& options) {
  return plan_backward_into(out, backward(q, k, v, options), gradients, options.call);
}

RecurrentAttentionBackwardArgs recurrent_attention_backward_args(
    const RecurrentAttentionGradientOutputs& out, const ConstTensorView& q,
    const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const RecurrentAttentionOptions& options) {
  return backward_args(out, backward(q, k, v, options), gradients);
}

// ---- over ranks ----

namespace distributed {

SequencePlan<RecurrentAttention> plan_recurrent_attention(const ConstTensorView& q,
                                                          const ConstTensorView& k,
                                                          const ConstTensorView& v,
                                                          const RecurrentAttentionOptions& options,
                                                          const SequenceLayout& layout,
                                                          attune::distributed::Exchange& exchange) {
  return plan_forward(forward(q, k, v, options), options.call, layout, exchange);
}

SequencePlan<RecurrentAttentionBackward> plan_recurrent_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const RecurrentAttentionOptions& options,
    const SequenceLayout& layout, attune::distributed::Exchange& exchange) {
  return plan_backward(backward(q, k, v, options), gradients, options.call, layout, exchange);
}

}  // namespace distributed

}  // namespace attune::ops
