// The same for the backward pass.
#include "attention_lowering.hpp"

namespace attune::ops {
namespace {

/// An output that is given exactly when its input is, of the input's shape.
void check_paired(CallCheck& check, std::string_view name, const TensorView* output,
                  std::string_view input_name, const ConstTensorView* input) {
  if (output == nullptr && input == nullptr) return;
  if (output == nullptr) check.refuse(name, "not given, expected with ", input_name);
  if (input == nullptr) check.refuse(name, "given without ", input_name);
  if (output->shape != input->shape) {
    check.refuse(name, "shape ", output->shape, ", expected ", input->shape, " (", input_name,
                 "'s)");
  }
  check.dtype(name, *output, DType::kF32);
}

void check_gate_gradients(CallCheck& check, const AttentionInputs& in,
                          const AttentionGradientOutputs& out, const AttentionSizes& sizes) {
  struct Pair {
    std::string_view name;
    const TensorView* output;
    std::string_view input_name;
    const ConstTensorView* input;
    bool has_channels;
  };
  for (const Pair& pair :
       {Pair{"dg", out.dg, "g", in.g, sizes.g_per_channel}, Pair{"dgk", out.dgk, "gk", in.gk, true},
        Pair{"dgv", out.dgv, "gv", in.gv, true}}) {
    check_paired(check, pair.name, pair.output, pair.input_name, pair.input);
    if (pair.output == nullptr) continue;
    if (pair.has_channels) check.dense_rows(pair.name, *pair.output);
    check.output(pair.name, *pair.output);
  }
  check_paired(check, "dinitial_state", out.dinitial_state, "initial_state", in.initial_state);
  if (out.dinitial_state != nullptr) check.output("dinitial_state", *out.dinitial_state);
}

void check_decay_gradient(CallCheck& check, const AttentionInputs& in,
                          const AttentionGradientOutputs& out) {
  const std::string_view name = in.decay.slopes != nullptr ? "dslopes" : "dg_gamma";
  check_paired(check, name, out.dgamma, decay_name(in.decay), decay_values(in.decay));
  if (out.dgamma == nullptr) return;
  if (in.canonical) {
    check.summed_output(name, *out.dgamma);
  } else {
    check.output(name, *out.dgamma);
  }
}

void check_output_gradients(CallCheck& check, const AttentionInputs& in,
                            const AttentionOutputGradients& gradients,
                            const AttentionSizes& sizes) {
  if (gradients.d_o == nullptr && gradients.dfinal_state == nullptr) {
    check.refuse(gradients.d_o_name, "neither it nor dfinal_state is given, expected at least one");
  }
  if (gradients.d_o != nullptr) {
    const std::string_view name = gradients.d_o_name;
    check.shape(name, *gradients.d_o, {sizes.B, sizes.T, sizes.H, sizes.V}, sizes.batch);
    check.dtype(name, *gradients.d_o, in.q->dtype, " (q's)");
    check.dense_rows(name, *gradients.d_o);
    check.input(name, *gradients.d_o);
  }
  if (gradients.dfinal_state != nullptr) {
    const ConstTensorView& state = *gradients.dfinal_state;
    check.shape("dfinal_state", state, {sizes.sequences, sizes.H, sizes.K, sizes.V});
    check.dtype("dfinal_state", state, DType::kF32);
    check.input("dfinal_state", state);
  }
}

void check_gradient_outputs(CallCheck& check, const AttentionInputs& in,
                            const AttentionGradientOutputs& out, const AttentionSizes& sizes) {
  const DType io = in.q->dtype;
  check_token_output(check, "dq", *out.dq, {sizes.B, sizes.T, sizes.H, sizes.K}, io, sizes);
  check_token_output(check, "dk", *out.dk, {sizes.B, sizes.T, sizes.Hkv, sizes.K}, io, sizes);
  check_token_output(check, "dv", *out.dv, {sizes.B, sizes.T, sizes.Hkv, sizes.V}, io, sizes);
  check_gate_gradients(check, in, out, sizes);
  check_decay_gradient(check, in, out);
}

void set_gradient_outputs(RecurrentAttentionBackwardArgs& args, const AttentionGradientOutputs& out,
                          const AttentionSizes& sizes) {
  args.dq = with_batch(*out.dq, 4);
  args.dk = with_batch(*out.dk, 4);
  args.dv = with_batch(*out.dv, 4);
  args.dg = optional_with_batch(sizes.g_per_channel ? nullptr : out.dg, 3);
  args.dgk = optional_with_batch(sizes.g_per_channel ? out.dg : out.dgk, 4);
  args.dgv = optional_with_batch(out.dgv, 4);
  if (out.dgamma != nullptr) args.dgamma = over_sequences(*out.dgamma, sizes.sequences);
  args.dinitial_state = optional_view(out.dinitial_state);
}

}  // namespace

CheckedAttention check_backward(const AttentionInputs& in,
                                const AttentionOutputGradients& gradients,
                                const AttentionGradientOutputs& out, Look look) {
  CallCheck check(in.op, look);
  const AttentionSizes sizes = check_inputs(check, in);
  check_output_gradients(check, in, gradients, sizes);
  CheckedAttention checked{sizes, problem_of(in, sizes)};
  RowsLayout layout = input_layout(in);
  if (gradients.d_o != nullptr) layout.add_tokens(*gradients.d_o);
  if (out.dq == nullptr) {
    expect_rows(layout, sizes, in.q->dtype, sizes.K);
    expect_rows(layout, sizes, in.q->dtype, sizes.V);
  } else {
    check_gradient_outputs(check, in, out, sizes);
    for (const TensorView* output : {out.dq, out.dk, out.dv}) layout.add_tokens(*output);
  }
  checked.problem.d_o = gradients.d_o != nullptr;
  checked.problem.ht = gradients.dfinal_state != nullptr;
  set_layout(checked.problem, layout);
  return checked;
}

Lowered<RecurrentAttentionBackward> lower_backward(const AttentionInputs& in,
                                                   const AttentionOutputGradients& gradients,
                                                   const AttentionGradientOutputs& out, Look look) {
  const CheckedAttention checked = check_backward(in, gradients, out, look);
  Lowered<RecurrentAttentionBackward> call{checked.problem, {}};
  set_inputs(call.args, in, checked.sizes);
  call.args.d_o = optional_with_batch(gradients.d_o, 4);
  call.args.dfinal_state = optional_view(gradients.dfinal_state);
  if (out.dq != nullptr) set_gradient_outputs(call.args, out, checked.sizes);
  return call;
}

}  // namespace attune::ops
