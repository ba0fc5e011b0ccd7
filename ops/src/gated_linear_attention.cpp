#include <attune/ops/gated_linear_attention.hpp>

#include "attention_run.hpp"

namespace attune::ops {
namespace {

AttentionInputs inputs_of_call(std::string_view op, const ConstTensorView& q,
                               const ConstTensorView& k, const ConstTensorView& v,
                               const ConstTensorView& gk,
                               const GatedLinearAttentionOptions& options) {
  AttentionInputs inputs = common_inputs(op, q, k, v, options);
  inputs.gk = &gk;
  return inputs;
}

constexpr std::string_view kForward = GatedLinearAttention::kName;
constexpr std::string_view kBackward = GatedLinearAttentionBackward::kName;

}  // namespace

RecurrentAttentionResult gated_linear_attention(const ConstTensorView& q, const ConstTensorView& k,
                                                const ConstTensorView& v, const ConstTensorView& gk,
                                                const GatedLinearAttentionOptions& options) {
  return run_forward(inputs_of_call(kForward, q, k, v, gk, options), options.want_final_state,
                     options.call);
}

void gated_linear_attention_into(const RecurrentAttentionOutputs& out, const ConstTensorView& q,
                                 const ConstTensorView& k, const ConstTensorView& v,
                                 const ConstTensorView& gk,
                                 const GatedLinearAttentionOptions& options) {
  run_forward_into(out, inputs_of_call(kForward, q, k, v, gk, options), options.call);
}

RecurrentAttentionGradients gated_linear_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const ConstTensorView& gk, const RecurrentAttentionOutputGradients& gradients,
    const GatedLinearAttentionOptions& options) {
  return run_backward(inputs_of_call(kBackward, q, k, v, gk, options), gradients, options.call);
}

void gated_linear_attention_backward_into(const RecurrentAttentionGradientOutputs& out,
                                          const ConstTensorView& q, const ConstTensorView& k,
                                          const ConstTensorView& v, const ConstTensorView& gk,
                                          const RecurrentAttentionOutputGradients& gradients,
                                          const GatedLinearAttentionOptions& options) {
  run_backward_into(out, inputs_of_call(kBackward, q, k, v, gk, options), gradients, options.call);
}

RecurrentAttentionOptions lowered(const ConstTensorView& gk,
                                  const GatedLinearAttentionOptions& options) {
  return {.g_gamma = options.g_gamma,
          .gk = gk,
          .initial_state = options.initial_state,
          .cu_seqlens = options.cu_seqlens,
          .cu_seqlens_host = options.cu_seqlens_host,
          .scale = options.scale,
          .reverse = options.reverse,
          .want_final_state = options.want_final_state,
          .call = options.call};
}

}  // namespace attune::ops
