#include <attune/ops/recurrent_decode.hpp>

#include "decode_call.hpp"

namespace attune::ops {
namespace {

DecodeInputs inputs_of_call(const ConstTensorView& q, const ConstTensorView& k,
                            const ConstTensorView& v, const TensorView& state,
                            const RecurrentDecodeOptions& options) {
  DecodeInputs inputs;
  inputs.op = RecurrentDecode::kName;
  inputs.q = &q;
  inputs.k = &k;
  inputs.v = &v;
  inputs.state = &state;
  inputs.g = pointer_to(options.g);
  inputs.gk = pointer_to(options.gk);
  inputs.gv = pointer_to(options.gv);
  inputs.decay.g_gamma = pointer_to(options.g_gamma);
  inputs.slot_indices = pointer_to(options.slot_indices);
  inputs.scale = options.scale;
  inputs.allow_tf32 = options.call.allow_tf32;
  return inputs;
}

}  // namespace

Tensor recurrent_decode(const ConstTensorView& q, const ConstTensorView& k,
                        const ConstTensorView& v, const TensorView& state,
                        const RecurrentDecodeOptions& options) {
  return run_decode(inputs_of_call(q, k, v, state, options), options.call);
}

void recurrent_decode_into(const TensorView& o, const ConstTensorView& q, const ConstTensorView& k,
                           const ConstTensorView& v, const TensorView& state,
                           const RecurrentDecodeOptions& options) {
  run_decode_into(o, inputs_of_call(q, k, v, state, options), options.call);
}

Plan<RecurrentDecode> plan_recurrent_decode(const ConstTensorView& q, const ConstTensorView& k,
                                            const ConstTensorView& v, const TensorView& state,
                                            const RecurrentDecodeOptions& options) {
  return plan_decode(inputs_of_call(q, k, v, state, options), options.call);
}

RecurrentDecodeArgs recurrent_decode_args(const TensorView& o, const ConstTensorView& q,
                                          const ConstTensorView& k, const ConstTensorView& v,
                                          const TensorView& state,
                                          const RecurrentDecodeOptions& options) {
  return lower_decode(inputs_of_call(q, k, v, state, options), &o, Look::kAll).args;
}

}  // namespace attune::ops
