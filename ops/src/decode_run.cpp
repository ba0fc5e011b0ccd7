#include "call_site.hpp"
#include "decode_call.hpp"

namespace attune::ops {

Tensor run_decode(const DecodeInputs& inputs, const CallOptions& call) {
  check_decode_inputs(inputs);
  const ConstTensorView& q = *inputs.q;
  const CallSite site(inputs.op, RecurrentDecode::kName, call, q.device);
  Tensor o = site.allocate(q.dtype, {q.size(0), q.size(1), inputs.v->size(2)});
  const TensorView view = o.view();
  const Lowered<RecurrentDecode> lowered = lower_decode(inputs, &view, Look::kAll);
  site.executor().run<RecurrentDecode>(lowered.problem, lowered.args, site.request());
  return o;
}

void run_decode_into(const TensorView& o, const DecodeInputs& inputs, const CallOptions& call) {
  const Lowered<RecurrentDecode> lowered = lower_decode(inputs, &o, Look::kAll);
  const CallSite site(inputs.op, RecurrentDecode::kName, call, inputs.q->device);
  site.executor().run<RecurrentDecode>(lowered.problem, lowered.args, site.request());
}

Plan<RecurrentDecode> plan_decode(const DecodeInputs& inputs, const CallOptions& call) {
  const Lowered<RecurrentDecode> lowered = lower_decode(inputs, nullptr, Look::kShapesOnly);
  const CallSite site(inputs.op, RecurrentDecode::kName, call, inputs.q->device);
  return site.executor().plan<RecurrentDecode>(lowered.problem, site.request());
}

}  // namespace attune::ops
