// The forms of a decoding step under both of its names: allocating, into given memory, and as a
// plan.
#include <attune/ops/lightning_decode.hpp>
#include <attune/ops/recurrent_decode.hpp>

#include "decode/decode_rules.hpp"
#include "operands/call_site.hpp"

namespace attune::ops {
namespace {

constexpr int kO = operand_at<RecurrentDecode>("o");

CallSite site_of(const DecodeCall& call, const CallOptions& options) {
  return {call.rules.name, RecurrentDecode::kName, options, call.args.q.device};
}

Tensor run(DecodeCall call, const CallOptions& options) {
  OperandCall checked(call.rules, call.args);
  const CallSite site = site_of(call, options);
  Tensor o = site.allocate(checked.output_type(kO), checked.output_shape(kO));
  call.args.o = o.view();
  const RecurrentDecodeProblem problem = checked.complete();
  site.executor().run<RecurrentDecode>(problem, call.args, site.request());
  return o;
}

RecurrentDecodeProblem lower(DecodeCall& call, const TensorView& o) {
  call.args.o = o;
  return OperandCall(call.rules, call.args).complete();
}

void run_into(const TensorView& o, DecodeCall call, const CallOptions& options) {
  const RecurrentDecodeProblem problem = lower(call, o);
  const CallSite site = site_of(call, options);
  site.executor().run<RecurrentDecode>(problem, call.args, site.request());
}

Plan<RecurrentDecode> plan_of(const RecurrentDecodeProblem& problem, const DecodeCall& call,
                              const CallOptions& options) {
  const CallSite site = site_of(call, options);
  return site.executor().plan<RecurrentDecode>(problem, site.request());
}

Plan<RecurrentDecode> plan(DecodeCall call, const CallOptions& options) {
  const OperandCall checked(call.rules, call.args, CheckLevel::kMetadata);
  return plan_of(checked.without_outputs(), call, options);
}

Plan<RecurrentDecode> plan_into(const TensorView& o, DecodeCall call, const CallOptions& options) {
  call.args.o = o;
  OperandCall checked(call.rules, call.args, CheckLevel::kMetadata);
  return plan_of(checked.complete(), call, options);
}

RecurrentDecodeArgs args_of(const TensorView& o, DecodeCall call) {
  lower(call, o);
  return call.args;
}

constexpr std::string_view kRecurrent = RecurrentDecode::kName;
constexpr std::string_view kLightning = LightningDecode::kName;

}  // namespace

Tensor recurrent_decode(const ConstTensorView& q, const ConstTensorView& k,
                        const ConstTensorView& v, const TensorView& state,
                        const RecurrentDecodeOptions& options) {
  return run(decode_call(kRecurrent, q, k, v, state, options), options.call);
}

void recurrent_decode_into(const TensorView& o, const ConstTensorView& q, const ConstTensorView& k,
                           const ConstTensorView& v, const TensorView& state,
                           const RecurrentDecodeOptions& options) {
  run_into(o, decode_call(kRecurrent, q, k, v, state, options), options.call);
}

Plan<RecurrentDecode> plan_recurrent_decode(const ConstTensorView& q, const ConstTensorView& k,
                                            const ConstTensorView& v, const TensorView& state,
                                            const RecurrentDecodeOptions& options) {
  return plan(decode_call(kRecurrent, q, k, v, state, options), options.call);
}

Plan<RecurrentDecode> plan_recurrent_decode(const TensorView& o, const ConstTensorView& q,
                                            const ConstTensorView& k, const ConstTensorView& v,
                                            const TensorView& state,
                                            const RecurrentDecodeOptions& options) {
  return plan_into(o, decode_call(kRecurrent, q, k, v, state, options), options.call);
}

RecurrentDecodeArgs recurrent_decode_args(const TensorView& o, const ConstTensorView& q,
                                          const ConstTensorView& k, const ConstTensorView& v,
                                          const TensorView& state,
                                          const RecurrentDecodeOptions& options) {
  return args_of(o, decode_call(kRecurrent, q, k, v, state, options));
}

Tensor lightning_decode(const ConstTensorView& q, const ConstTensorView& k,
                        const ConstTensorView& v, const TensorView& state,
                        const LightningDecodeOptions& options) {
  return run(decode_call(kLightning, q, k, v, state, options), options.call);
}

void lightning_decode_into(const TensorView& o, const ConstTensorView& q, const ConstTensorView& k,
                           const ConstTensorView& v, const TensorView& state,
                           const LightningDecodeOptions& options) {
  run_into(o, decode_call(kLightning, q, k, v, state, options), options.call);
}

Plan<RecurrentDecode> plan_lightning_decode(const ConstTensorView& q, const ConstTensorView& k,
                                            const ConstTensorView& v, const TensorView& state,
                                            const LightningDecodeOptions& options) {
  return plan(decode_call(kLightning, q, k, v, state, options), options.call);
}

Plan<RecurrentDecode> plan_lightning_decode(const TensorView& o, const ConstTensorView& q,
                                            const ConstTensorView& k, const ConstTensorView& v,
                                            const TensorView& state,
                                            const LightningDecodeOptions& options) {
  return plan_into(o, decode_call(kLightning, q, k, v, state, options), options.call);
}

RecurrentDecodeArgs lightning_decode_args(const TensorView& o, const ConstTensorView& q,
                                          const ConstTensorView& k, const ConstTensorView& v,
                                          const TensorView& state,
                                          const LightningDecodeOptions& options) {
  return args_of(o, decode_call(kLightning, q, k, v, state, options));
}

}  // namespace attune::ops
