#include "attention/attention_run.hpp"

#include "operands/call_site.hpp"

namespace attune::ops {
namespace {

template <class Op>
CallSite site_of(const AttentionCall<Op>& call, const CallOptions& options) {
  return {call.rules.name, Op::kName, options, call.args.q.device};
}

void set_outputs(ForwardCall& call, const RecurrentAttentionOutputs& out) {
  call.args.o = out.o;
  call.args.final_state = out.final_state;
}

void set_gradients(BackwardCall& call, const RecurrentAttentionOutputGradients& gradients) {
  call.args.d_o = gradients.d_o;
  call.args.dfinal_state = gradients.dfinal_state;
}

void set_outputs(BackwardCall& call, const RecurrentAttentionGradientOutputs& out) {
  call.args.dq = out.dq;
  call.args.dk = out.dk;
  call.args.dv = out.dv;
  call.args.dg = out.dg;
  call.args.dgk = out.dgk;
  call.args.dgv = out.dgv;
  call.args.dgamma = out.dg_gamma;
  call.args.dinitial_state = out.dinitial_state;
}

/// A complete call, run.
template <class Op>
void run_into(AttentionCall<Op>& call, const CallOptions& options) {
  const auto problem = OperandCall(call.rules, call.args).complete();
  const CallSite site = site_of(call, options);
  site.executor().template run<Op>(problem, call.args, site.request());
}

enum class PlannedWith : std::uint8_t { kInputs, kOutputs };

template <class Op>
Plan<Op> plan_of(AttentionCall<Op>& call, const CallOptions& options, PlannedWith with) {
  OperandCall checked(call.rules, call.args, CheckLevel::kMetadata);
  const auto problem =
      with == PlannedWith::kOutputs ? checked.complete() : checked.without_outputs();
  const CallSite site = site_of(call, options);
  return site.executor().template plan<Op>(problem, site.request());
}

/// Makes outputs of a call whose inputs are checked.
template <class Op>
class Outputs {
 public:
  Outputs(const CallSite& site, const OperandCall<AttentionRules<Op>>& call)
      : site_(site), call_(call) {}

  template <class View>
  Tensor make(int operand, View& view) const {
    Tensor tensor = site_.allocate(call_.output_type(operand), call_.output_shape(operand));
    view = tensor.view();
    return tensor;
  }
  template <class View>
  std::optional<Tensor> make_if(bool wanted, int operand, View& view) const {
    if (!wanted) return std::nullopt;
    return make(operand, view);
  }

 private:
  const CallSite& site_;
  const OperandCall<AttentionRules<Op>>& call_;
};

}  // namespace

RecurrentAttentionResult run_forward(ForwardCall call, const CallOptions& options) {
  using Op = RecurrentAttention;
  RecurrentAttentionArgs& args = call.args;
  OperandCall checked(call.rules, args);
  const CallSite site = site_of(call, options);
  const Outputs<Op> outputs(site, checked);
  RecurrentAttentionResult result;
  result.o = outputs.make(operand_at<Op>("o"), args.o);
  result.final_state =
      outputs.make_if(call.rules.want_final_state, operand_at<Op>("final_state"), args.final_state);
  const auto problem = checked.complete();
  site.executor().run<Op>(problem, args, site.request());
  return result;
}

void run_forward_into(const RecurrentAttentionOutputs& out, ForwardCall call,
                      const CallOptions& options) {
  set_outputs(call, out);
  run_into(call, options);
}

Plan<RecurrentAttention> plan_forward(ForwardCall call, const CallOptions& options) {
  return plan_of(call, options, PlannedWith::kInputs);
}

Plan<RecurrentAttention> plan_forward_into(const RecurrentAttentionOutputs& out, ForwardCall call,
                                           const CallOptions& options) {
  set_outputs(call, out);
  return plan_of(call, options, PlannedWith::kOutputs);
}

RecurrentAttentionArgs forward_args(const RecurrentAttentionOutputs& out, ForwardCall call) {
  set_outputs(call, out);
  OperandCall(call.rules, call.args).complete();
  return call.args;
}

RecurrentAttentionGradients run_backward(BackwardCall call,
                                         const RecurrentAttentionOutputGradients& gradients,
                                         const CallOptions& options) {
  using Op = RecurrentAttentionBackward;
  using Source = ConstantDecay::Source;
  set_gradients(call, gradients);
  RecurrentAttentionBackwardArgs& args = call.args;
  const bool has_g_per_channel = args.g && !args.gk;
  OperandCall checked(call.rules, args);
  const CallSite site = site_of(call, options);
  const Outputs<Op> outputs(site, checked);
  RecurrentAttentionGradients result;
  result.dq = outputs.make(operand_at<Op>("dq"), args.dq);
  result.dk = outputs.make(operand_at<Op>("dk"), args.dk);
  result.dv = outputs.make(operand_at<Op>("dv"), args.dv);
  result.dg = outputs.make_if(args.g.has_value(), operand_at<Op>("dg"), args.dg);
  // A g of each key channel has become gk by now, and its gradient is still dg.
  (has_g_per_channel && args.gk ? result.dg : result.dgk) =
      outputs.make_if(args.gk.has_value(), operand_at<Op>("dgk"), args.dgk);
  result.dgv = outputs.make_if(args.gv.has_value(), operand_at<Op>("dgv"), args.dgv);
  const bool by_slopes = args.gamma.source == Source::kSlopes;
  result.dg_gamma = outputs.make_if(
      by_slopes || args.gamma.source == Source::kValues,
      by_slopes ? operand_at<Op>("dslopes") : operand_at<Op>("dg_gamma"), args.dgamma);
  result.dinitial_state = outputs.make_if(args.initial_state.has_value(),
                                          operand_at<Op>("dinitial_state"), args.dinitial_state);
  const auto problem = checked.complete();
  site.executor().run<Op>(problem, args, site.request());
  return result;
}

void run_backward_into(const RecurrentAttentionGradientOutputs& out, BackwardCall call,
                       const RecurrentAttentionOutputGradients& gradients,
                       const CallOptions& options) {
  set_gradients(call, gradients);
  set_outputs(call, out);
  run_into(call, options);
}

Plan<RecurrentAttentionBackward> plan_backward(BackwardCall call,
                                               const RecurrentAttentionOutputGradients& gradients,
                                               const CallOptions& options) {
  set_gradients(call, gradients);
  return plan_of(call, options, PlannedWith::kInputs);
}

Plan<RecurrentAttentionBackward> plan_backward_into(
    const RecurrentAttentionGradientOutputs& out, BackwardCall call,
    const RecurrentAttentionOutputGradients& gradients, const CallOptions& options) {
  set_gradients(call, gradients);
  set_outputs(call, out);
  return plan_of(call, options, PlannedWith::kOutputs);
}

RecurrentAttentionBackwardArgs backward_args(const RecurrentAttentionGradientOutputs& out,
                                             BackwardCall call,
                                             const RecurrentAttentionOutputGradients& gradients) {
  set_gradients(call, gradients);
  set_outputs(call, out);
  OperandCall(call.rules, call.args).complete();
  return call.args;
}

}  // namespace attune::ops
