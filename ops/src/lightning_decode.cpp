#include <attune/ops/lightning_decode.hpp>

#include "decode_call.hpp"

namespace attune::ops {
namespace {

DecodeInputs inputs_of_call(const ConstTensorView& q, const ConstTensorView& k,
                            const ConstTensorView& v, const TensorView& state,
                            const LightningDecodeOptions& options) {
  DecodeInputs inputs = common_inputs(LightningDecode::kName, q, k, v, state, options);
  inputs.decay.slopes = pointer_to(options.slopes);
  inputs.decay.layer_idx = options.layer_idx;
  inputs.decay.num_layers = options.num_layers;
  inputs.decay.required = true;
  return inputs;
}

}  // namespace

Tensor lightning_decode(const ConstTensorView& q, const ConstTensorView& k,
                        const ConstTensorView& v, const TensorView& state,
                        const LightningDecodeOptions& options) {
  return run_decode(inputs_of_call(q, k, v, state, options), options.call);
}

void lightning_decode_into(const TensorView& o, const ConstTensorView& q, const ConstTensorView& k,
                           const ConstTensorView& v, const TensorView& state,
                           const LightningDecodeOptions& options) {
  run_decode_into(o, inputs_of_call(q, k, v, state, options), options.call);
}

Plan<RecurrentDecode> plan_lightning_decode(const ConstTensorView& q, const ConstTensorView& k,
                                            const ConstTensorView& v, const TensorView& state,
                                            const LightningDecodeOptions& options) {
  return plan_decode(inputs_of_call(q, k, v, state, options), options.call);
}

RecurrentDecodeArgs lightning_decode_args(const TensorView& o, const ConstTensorView& q,
                                          const ConstTensorView& k, const ConstTensorView& v,
                                          const TensorView& state,
                                          const LightningDecodeOptions& options) {
  return lower_decode(inputs_of_call(q, k, v, state, options), &o, Look::kAll).args;
}

}  // namespace attune::ops
