#include <attune/ops/lightning_decode.hpp>

#include "decode_call.hpp"

namespace attune::ops {
namespace {

DecodeInputs inputs_of_call(const ConstTensorView& q, const ConstTensorView& k,
                            const ConstTensorView& v, const TensorView& state,
                            const LightningDecodeOptions& options) {
  DecodeInputs inputs;
  inputs.op = LightningDecode::kName;
  inputs.q = &q;
  inputs.k = &k;
  inputs.v = &v;
  inputs.state = &state;
  inputs.decay = {.g_gamma = pointer_to(options.g_gamma),
                  .slopes = pointer_to(options.slopes),
                  .layer_idx = options.layer_idx,
                  .num_layers = options.num_layers,
                  .required = true};
  inputs.slot_indices = pointer_to(options.slot_indices);
  inputs.scale = options.scale;
  inputs.allow_tf32 = options.call.allow_tf32;
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
