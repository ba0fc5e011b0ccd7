// A call of recurrent_attention under any of its names: what the caller gave, and the one form that
// kernels see. The three ops, their plans, cases and Plan::launch all come through here.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <attune/ops/recurrent_attention.hpp>

#include "call_check.hpp"
#include "constant_decay.hpp"

namespace attune::ops {

/// The inputs as the caller gave them: borrowed, null where not given.
struct AttentionInputs {
  std::string_view op;  // as the caller says it
  const ConstTensorView* q = nullptr;
  const ConstTensorView* k = nullptr;
  const ConstTensorView* v = nullptr;
  const ConstTensorView* g = nullptr;
  const ConstTensorView* gk = nullptr;
  const ConstTensorView* gv = nullptr;
  DecayInputs decay = {};
  const ConstTensorView* initial_state = nullptr;
  const ConstTensorView* cu_seqlens = nullptr;
  const ConstTensorView* cu_seqlens_host = nullptr;
  std::optional<double> scale = {};
  bool reverse = false;
  bool allow_tf32 = false;
  bool canonical = false;  // made from Args, whose decay is [N, H]
};

struct AttentionOutputs {
  const TensorView* o = nullptr;  // null while only shapes are looked at
  const TensorView* final_state = nullptr;
  bool want_final_state = false;  // read when `o` is null
};

struct AttentionOutputGradients {
  const ConstTensorView* d_o = nullptr;
  const ConstTensorView* dfinal_state = nullptr;
  std::string_view d_o_name = "d_o";  // files say "do"
};

struct AttentionGradientOutputs {
  const TensorView* dq = nullptr;  // null while only shapes are looked at, and so all
  const TensorView* dk = nullptr;
  const TensorView* dv = nullptr;
  const TensorView* dg = nullptr;
  const TensorView* dgamma = nullptr;
  const TensorView* dgk = nullptr;
  const TensorView* dgv = nullptr;
  const TensorView* dinitial_state = nullptr;
};

/// The sizes of a call's tensors.
struct AttentionSizes {
  std::int64_t B = 0, T = 0, H = 0, Hkv = 0, K = 0, V = 0;
  std::int64_t sequences = 0;  // N when packed, else B
  bool packed = false;
  Batch batch = Batch::kRequired;  // of q, k, v, gates, o and their gradients
  bool g_per_channel = false;      // g has a decay for each key channel
};

/// What is known of a call once it has been checked.
struct CheckedAttention {
  AttentionSizes sizes;
  RecurrentAttentionProblem problem;
};

/// Check the whole call. Throw InvalidArgument.
CheckedAttention check_forward(const AttentionInputs& inputs, const AttentionOutputs& outputs,
                               Look look);
CheckedAttention check_backward(const AttentionInputs& inputs,
                                const AttentionOutputGradients& gradients,
                                const AttentionGradientOutputs& outputs, Look look);

/// A call in its canonical form.
template <class Op>
struct Lowered {
  typename Op::Problem problem;
  typename Op::Args args;
};

/// Check the whole call and lower it. Throw InvalidArgument.
Lowered<RecurrentAttention> lower_forward(const AttentionInputs& inputs,
                                          const AttentionOutputs& outputs, Look look);
Lowered<RecurrentAttentionBackward> lower_backward(const AttentionInputs& inputs,
                                                   const AttentionOutputGradients& gradients,
                                                   const AttentionGradientOutputs& outputs,
                                                   Look look);

/// Checks the inputs alone. An allocating call does so before it allocates.
AttentionSizes check_inputs(CallCheck& check, const AttentionInputs& inputs);
AttentionSizes check_inputs(const AttentionInputs& inputs);

/// The shape of o: q's with v's channels.
Extents output_shape(const AttentionInputs& inputs, const AttentionSizes& sizes);

/// Null for nothing.
template <class T>
const T* pointer_to(const std::optional<T>& value) {
  return value ? &*value : nullptr;
}

/// What the options of all three ops have in common. Borrows everything.
template <class Options>
AttentionInputs common_inputs(std::string_view op, const ConstTensorView& q,
                              const ConstTensorView& k, const ConstTensorView& v,
                              const Options& options) {
  AttentionInputs inputs;
  inputs.op = op;
  inputs.q = &q;
  inputs.k = &k;
  inputs.v = &v;
  inputs.decay.g_gamma = pointer_to(options.g_gamma);
  inputs.initial_state = pointer_to(options.initial_state);
  inputs.cu_seqlens = pointer_to(options.cu_seqlens);
  inputs.cu_seqlens_host = pointer_to(options.cu_seqlens_host);
  inputs.scale = options.scale;
  inputs.reverse = options.reverse;
  inputs.allow_tf32 = options.call.allow_tf32;
  return inputs;
}

/// The inputs of canonical arguments. Borrows `args`.
template <class Args>
AttentionInputs inputs_of(const Args& args) {
  AttentionInputs inputs;
  inputs.q = &args.q;
  inputs.k = &args.k;
  inputs.v = &args.v;
  inputs.g = pointer_to(args.g);
  inputs.gk = pointer_to(args.gk);
  inputs.gv = pointer_to(args.gv);
  inputs.decay = decay_inputs(args.gamma);
  inputs.initial_state = pointer_to(args.initial_state);
  inputs.cu_seqlens = pointer_to(args.cu_seqlens);
  inputs.scale = args.scale;
  inputs.canonical = true;
  return inputs;
}

}  // namespace attune::ops
