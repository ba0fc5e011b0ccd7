#include "attention_run.hpp"

#include "call_site.hpp"

namespace attune::ops {
namespace {

CallSite site_of(std::string_view target, const AttentionInputs& inputs, const CallOptions& call) {
  return {inputs.op, target, call, inputs.q->device};
}

AttentionOutputs outputs_of(const RecurrentAttentionOutputs& out) {
  return {.o = &out.o, .final_state = pointer_to(out.final_state)};
}

AttentionOutputGradients gradients_of(const RecurrentAttentionOutputGradients& gradients) {
  return {.d_o = pointer_to(gradients.d_o), .dfinal_state = pointer_to(gradients.dfinal_state)};
}

AttentionGradientOutputs outputs_of(const RecurrentAttentionGradientOutputs& out) {
  return {.dq = &out.dq,
          .dk = &out.dk,
          .dv = &out.dv,
          .dg = pointer_to(out.dg),
          .dgamma = pointer_to(out.dg_gamma),
          .dgk = pointer_to(out.dgk),
          .dgv = pointer_to(out.dgv),
          .dinitial_state = pointer_to(out.dinitial_state)};
}

/// A lowered call, run.
template <class Op>
void execute(const CallSite& site, const Lowered<Op>& call) {
  site.executor().run<Op>(call.problem, call.args, site.request());
}

std::optional<Tensor> allocate_like(const CallSite& site, const ConstTensorView* input) {
  if (input == nullptr) return std::nullopt;
  return site.allocate(DType::kF32, input->shape);
}

std::optional<TensorView> view_of(std::optional<Tensor>& tensor) {
  if (!tensor) return std::nullopt;
  return tensor->view();
}

RecurrentAttentionGradients allocate_gradients(const CallSite& site, const AttentionInputs& in) {
  const DType io = in.q->dtype;
  return {.dq = site.allocate(io, in.q->shape),
          .dk = site.allocate(io, in.k->shape),
          .dv = site.allocate(io, in.v->shape),
          .dg = allocate_like(site, in.g),
          .dg_gamma = allocate_like(site, decay_values(in.decay)),
          .dgk = allocate_like(site, in.gk),
          .dgv = allocate_like(site, in.gv),
          .dinitial_state = allocate_like(site, in.initial_state)};
}

}  // namespace

RecurrentAttentionResult run_forward(const AttentionInputs& inputs, bool want_final_state,
                                     const CallOptions& call) {
  const AttentionSizes sizes = check_inputs(inputs);
  const CallSite site = site_of(RecurrentAttention::kName, inputs, call);
  RecurrentAttentionResult result;
  result.o = site.allocate(inputs.q->dtype, output_shape(inputs, sizes));
  if (want_final_state) {
    result.final_state = site.allocate(DType::kF32, {sizes.sequences, sizes.H, sizes.K, sizes.V});
  }
  const RecurrentAttentionOutputs out{result.o.view(), view_of(result.final_state)};
  execute(site, lower_forward(inputs, outputs_of(out), Look::kAll));
  return result;
}

void run_forward_into(const RecurrentAttentionOutputs& out, const AttentionInputs& inputs,
                      const CallOptions& call) {
  const auto lowered = lower_forward(inputs, outputs_of(out), Look::kAll);
  execute(site_of(RecurrentAttention::kName, inputs, call), lowered);
}

Plan<RecurrentAttention> plan_forward(const AttentionInputs& inputs, bool want_final_state,
                                      const CallOptions& call) {
  const AttentionOutputs out{.want_final_state = want_final_state};
  const auto lowered = lower_forward(inputs, out, Look::kShapesOnly);
  const CallSite site = site_of(RecurrentAttention::kName, inputs, call);
  return site.executor().plan<RecurrentAttention>(lowered.problem, site.request());
}

RecurrentAttentionArgs forward_args(const RecurrentAttentionOutputs& out,
                                    const AttentionInputs& inputs) {
  return lower_forward(inputs, outputs_of(out), Look::kAll).args;
}

RecurrentAttentionGradients run_backward(const AttentionInputs& inputs,
                                         const RecurrentAttentionOutputGradients& gradients,
                                         const CallOptions& call) {
  check_inputs(inputs);
  const CallSite site = site_of(RecurrentAttentionBackward::kName, inputs, call);
  RecurrentAttentionGradients result = allocate_gradients(site, inputs);
  const RecurrentAttentionGradientOutputs out{.dq = result.dq.view(),
                                              .dk = result.dk.view(),
                                              .dv = result.dv.view(),
                                              .dg = view_of(result.dg),
                                              .dg_gamma = view_of(result.dg_gamma),
                                              .dgk = view_of(result.dgk),
                                              .dgv = view_of(result.dgv),
                                              .dinitial_state = view_of(result.dinitial_state)};
  execute(site, lower_backward(inputs, gradients_of(gradients), outputs_of(out), Look::kAll));
  return result;
}

void run_backward_into(const RecurrentAttentionGradientOutputs& out, const AttentionInputs& inputs,
                       const RecurrentAttentionOutputGradients& gradients,
                       const CallOptions& call) {
  const auto lowered = lower_backward(inputs, gradients_of(gradients), outputs_of(out), Look::kAll);
  execute(site_of(RecurrentAttentionBackward::kName, inputs, call), lowered);
}

Plan<RecurrentAttentionBackward> plan_backward(const AttentionInputs& inputs,
                                               const RecurrentAttentionOutputGradients& gradients,
                                               const CallOptions& call) {
  const auto lowered = lower_backward(inputs, gradients_of(gradients), {}, Look::kShapesOnly);
  const CallSite site = site_of(RecurrentAttentionBackward::kName, inputs, call);
  return site.executor().plan<RecurrentAttentionBackward>(lowered.problem, site.request());
}

RecurrentAttentionBackwardArgs backward_args(const RecurrentAttentionGradientOutputs& out,
                                             const AttentionInputs& inputs,
                                             const RecurrentAttentionOutputGradients& gradients) {
  return lower_backward(inputs, gradients_of(gradients), outputs_of(out), Look::kAll).args;
}

}  // namespace attune::ops
