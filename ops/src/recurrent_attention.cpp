#include <attune/ops/recurrent_attention.hpp>

#include "attention_run.hpp"

namespace attune::ops {
namespace {

AttentionInputs inputs_of_call(std::string_view op, const ConstTensorView& q,
                               const ConstTensorView& k, const ConstTensorView& v,
                               const RecurrentAttentionOptions& options) {
  AttentionInputs inputs = common_inputs(op, q, k, v, options);
  inputs.g = pointer_to(options.g);
  inputs.gk = pointer_to(options.gk);
  inputs.gv = pointer_to(options.gv);
  return inputs;
}

constexpr std::string_view kForward = RecurrentAttention::kName;
constexpr std::string_view kBackward = RecurrentAttentionBackward::kName;

}  // namespace

RecurrentAttentionResult recurrent_attention(const ConstTensorView& q, const ConstTensorView& k,
                                             const ConstTensorView& v,
                                             const RecurrentAttentionOptions& options) {
  return run_forward(inputs_of_call(kForward, q, k, v, options), options.want_final_state,
                     options.call);
}

void recurrent_attention_into(const RecurrentAttentionOutputs& out, const ConstTensorView& q,
                              const ConstTensorView& k, const ConstTensorView& v,
                              const RecurrentAttentionOptions& options) {
  run_forward_into(out, inputs_of_call(kForward, q, k, v, options), options.call);
}

Plan<RecurrentAttention> plan_recurrent_attention(const ConstTensorView& q,
                                                  const ConstTensorView& k,
                                                  const ConstTensorView& v,
                                                  const RecurrentAttentionOptions& options) {
  return plan_forward(inputs_of_call(kForward, q, k, v, options), options.want_final_state,
                      options.call);
}

RecurrentAttentionArgs recurrent_attention_args(const RecurrentAttentionOutputs& out,
                                                const ConstTensorView& q, const ConstTensorView& k,
                                                const ConstTensorView& v,
                                                const RecurrentAttentionOptions& options) {
  return forward_args(out, inputs_of_call(kForward, q, k, v, options));
}

RecurrentAttentionGradients recurrent_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const RecurrentAttentionOptions& options) {
  return run_backward(inputs_of_call(kBackward, q, k, v, options), gradients, options.call);
}

void recurrent_attention_backward_into(const RecurrentAttentionGradientOutputs& out,
                                       const ConstTensorView& q, const ConstTensorView& k,
                                       const ConstTensorView& v,
                                       const RecurrentAttentionOutputGradients& gradients,
                                       const RecurrentAttentionOptions& options) {
  run_backward_into(out, inputs_of_call(kBackward, q, k, v, options), gradients, options.call);
}

Plan<RecurrentAttentionBackward> plan_recurrent_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const RecurrentAttentionOptions& options) {
  return plan_backward(inputs_of_call(kBackward, q, k, v, options), gradients, options.call);
}

RecurrentAttentionBackwardArgs recurrent_attention_backward_args(
    const RecurrentAttentionGradientOutputs& out, const ConstTensorView& q,
    const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const RecurrentAttentionOptions& options) {
  return backward_args(out, inputs_of_call(kBackward, q, k, v, options), gradients);
}

}  // namespace attune::ops
