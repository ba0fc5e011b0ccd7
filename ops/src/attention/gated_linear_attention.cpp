#include <attune/ops/gated_linear_attention.hpp>

#include "attention/attention_run.hpp"
#include "distributed/distributed_run.hpp"

namespace attune::ops {
namespace {

template <class Op, class Alias>
AttentionCall<Op> call_of(const ConstTensorView& q, const ConstTensorView& k,
                          const ConstTensorView& v, const ConstTensorView& gk,
                          const GatedLinearAttentionOptions& options) {
  AttentionCall<Op> call = attention_call<Op>(Alias::kName, q, k, v, options);
  call.args.gk = gk;
  return call;
}
constexpr auto& forward = call_of<RecurrentAttention, GatedLinearAttention>;
constexpr auto& backward = call_of<RecurrentAttentionBackward, GatedLinearAttentionBackward>;

}  // namespace

RecurrentAttentionResult gated_linear_attention(const ConstTensorView& q, const ConstTensorView& k,
                                                const ConstTensorView& v, const ConstTensorView& gk,
                                                const GatedLinearAttentionOptions& options) {
  return run_forward(forward(q, k, v, gk, options), options.call);
}

void gated_linear_attention_into(const RecurrentAttentionOutputs& out, const ConstTensorView& q,
                                 const ConstTensorView& k, const ConstTensorView& v,
                                 const ConstTensorView& gk,
                                 const GatedLinearAttentionOptions& options) {
  run_forward_into(out, forward(q, k, v, gk, options), options.call);
}

RecurrentAttentionGradients gated_linear_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const ConstTensorView& gk, const RecurrentAttentionOutputGradients& gradients,
    const GatedLinearAttentionOptions& options) {
  return run_backward(backward(q, k, v, gk, options), gradients, options.call);
}

void gated_linear_attention_backward_into(const RecurrentAttentionGradientOutputs& out,
                                          const ConstTensorView& q, const ConstTensorView& k,
                                          const ConstTensorView& v, const ConstTensorView& gk,
                                          const RecurrentAttentionOutputGradients& gradients,
                                          const GatedLinearAttentionOptions& options) {
  run_backward_into(out, backward(q, k, v, gk, options), gradients, options.call);
}

RecurrentAttentionOptions lowered(const ConstTensorView& gk,
                                  const GatedLinearAttentionOptions& options) {
  return {.g_gamma = options.g_gamma,
          .gk = gk,
          .initial_state = options.initial_state,
          .cu_seqlens = options.cu_seqlens,
          .cu_seqlens_host = options.cu_seqlens_host,
          .states = options.states,
          .initial_slots = options.initial_slots,
          .final_slots = options.final_slots,
          .snapshot_every = options.snapshot_every,
          .snapshot_slots = options.snapshot_slots,
          .state_rounding = options.state_rounding,
          .scale = options.scale,
          .reverse = options.reverse,
          .want_final_state = options.want_final_state,
          .call = options.call};
}

// ---- over ranks ----

namespace distributed {

SequencePlan<RecurrentAttention> plan_gated_linear_attention(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const ConstTensorView& gk, const GatedLinearAttentionOptions& options,
    const SequenceLayout& layout, attune::distributed::Exchange& exchange) {
  return plan_forward(forward(q, k, v, gk, options), options.call, layout, exchange);
}

SequencePlan<RecurrentAttentionBackward> plan_gated_linear_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const ConstTensorView& gk, const RecurrentAttentionOutputGradients& gradients,
    const GatedLinearAttentionOptions& options, const SequenceLayout& layout,
    attune::distributed::Exchange& exchange) {
  return plan_backward(backward(q, k, v, gk, options), gradients, options.call, layout, exchange);
}

}  // namespace distributed

}  // namespace attune::ops
