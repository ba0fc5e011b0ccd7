// A call of recurrent_decode under either of its names, and its canonical form.
#pragma once

#include <optional>
#include <string_view>

#include <attune/ops/recurrent_decode.hpp>

#include "attention_call.hpp"
#include "constant_decay.hpp"

namespace attune::ops {

/// The inputs as the caller gave them: borrowed, null where not given.
struct DecodeInputs {
  std::string_view op;  // as the caller says it
  const ConstTensorView* q = nullptr;
  const ConstTensorView* k = nullptr;
  const ConstTensorView* v = nullptr;
  const TensorView* state = nullptr;
  std::string_view state_name = "state";  // files say "kv_cache"
  const ConstTensorView* g = nullptr;
  const ConstTensorView* gk = nullptr;
  const ConstTensorView* gv = nullptr;
  DecayInputs decay = {};
  const ConstTensorView* slot_indices = nullptr;
  std::optional<double> scale = {};
  bool allow_tf32 = false;
  bool canonical = false;  // made from Args, whose decay is [1, H]
};

/// Check the whole call; `o` is null while only shapes are looked at. Throw InvalidArgument.
RecurrentDecodeProblem check_decode(const DecodeInputs& inputs, const TensorView* o, Look look);
Lowered<RecurrentDecode> lower_decode(const DecodeInputs& inputs, const TensorView* o, Look look);

/// Checks all but o.
void check_decode_inputs(const DecodeInputs& inputs);

/// What the options of both ops have in common. Borrows everything.
template <class Options>
DecodeInputs common_inputs(std::string_view op, const ConstTensorView& q, const ConstTensorView& k,
                           const ConstTensorView& v, const TensorView& state,
                           const Options& options) {
  DecodeInputs inputs;
  inputs.op = op;
  inputs.q = &q;
  inputs.k = &k;
  inputs.v = &v;
  inputs.state = &state;
  inputs.decay.g_gamma = pointer_to(options.g_gamma);
  inputs.slot_indices = pointer_to(options.slot_indices);
  inputs.scale = options.scale;
  inputs.allow_tf32 = options.call.allow_tf32;
  return inputs;
}

/// The inputs of canonical arguments. Borrows `args`.
DecodeInputs inputs_of(const RecurrentDecodeArgs& args);

Tensor run_decode(const DecodeInputs& inputs, const CallOptions& call);
void run_decode_into(const TensorView& o, const DecodeInputs& inputs, const CallOptions& call);
Plan<RecurrentDecode> plan_decode(const DecodeInputs& inputs, const CallOptions& call);

}  // namespace attune::ops
