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

/// Checks the whole call and lowers it. `o` is null while only shapes are looked at. Throws
/// InvalidArgument.
Lowered<RecurrentDecode> lower_decode(const DecodeInputs& inputs, const TensorView* o, Look look);

/// Checks all but o.
void check_decode_inputs(const DecodeInputs& inputs);

/// The inputs of canonical arguments. Borrows `args`.
DecodeInputs inputs_of(const RecurrentDecodeArgs& args);

Tensor run_decode(const DecodeInputs& inputs, const CallOptions& call);
void run_decode_into(const TensorView& o, const DecodeInputs& inputs, const CallOptions& call);
Plan<RecurrentDecode> plan_decode(const DecodeInputs& inputs, const CallOptions& call);

}  // namespace attune::ops
