#include <attune/ops/recurrent_decode.hpp>

#include "decode_call.hpp"

namespace attune::ops {
namespace {

DecodeInputs inputs_of_call(const ConstTensorView& q, const ConstTensorView& k,
                            const ConstTensorView& v, const TensorView& state,
                            const RecurrentDecodeOptions& options) {
  DecodeInputs inputs = common_inputs(RecurrentDecode::kName, q, k, v, state, options);
  inputs.g = pointer_to(options.g);
  inputs.gk = pointer_to(options.gk);
  inputs.gv = pointer_to(options.gv);
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
