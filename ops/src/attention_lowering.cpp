// From a forward call as the caller gave it to the problem and the arguments that kernels see.
#include "attention_lowering.hpp"

namespace attune::ops {
RecurrentAttentionProblem problem_of(const AttentionInputs& in, const AttentionSizes& sizes) {
  const CanonicalGates gates = canonical_gates(in, sizes);
  const bool constant_decay = decay_values(in.decay) != nullptr || in.decay.layer_idx.has_value();
  RecurrentAttentionProblem problem;
  problem.B = sizes.B;
  problem.T = sizes.T;
  problem.H = sizes.H;
  problem.Hkv = sizes.Hkv;
  problem.K = sizes.K;
  problem.V = sizes.V;
  problem.N = sizes.packed ? sizes.sequences : 0;
  problem.dtype = in.q->dtype;
  problem.gates = gate_bits(gates.g, constant_decay, gates.gk, in.gv);
  problem.gate_dtype = gate_dtype_of({in.g, in.gk, in.gv});
  problem.h0 = in.initial_state != nullptr;
  problem.reverse = in.reverse;
  problem.tf32 = in.allow_tf32 && in.q->dtype == DType::kF32;
  return problem;
}

void check_token_output(CallCheck& check, std::string_view name, const TensorView& view, Dims shape,
                        DType dtype, const AttentionSizes& sizes) {
  check.shape(name, view, shape, sizes.batch);
  check.dtype(name, view, dtype, " (q's)");
  check.dense_rows(name, view);
  check.output(name, view);
}

void expect_rows(RowsLayout& layout, const AttentionSizes& sizes, DType dtype,
                 std::int64_t channels) {
  const bool several = sizes.B > 1 || sizes.T > 1 || sizes.H > 1;
  layout.add_expected(several && sizes.B > 0 && sizes.T > 0,
                      channels * static_cast<std::int64_t>(size_of(dtype)));
}

void set_layout(RecurrentAttentionProblem& problem, const RowsLayout& layout) {
  problem.layout = layout.layout();
  problem.aligned = layout.aligned();
}

RowsLayout input_layout(const AttentionInputs& in) {
  RowsLayout layout;
  layout.add_tokens(*in.q);
  layout.add_tokens(*in.k);
  layout.add_tokens(*in.v);
  return layout;
}

CheckedAttention check_forward(const AttentionInputs& in, const AttentionOutputs& out, Look look) {
  CallCheck check(in.op, look);
  const AttentionSizes sizes = check_inputs(check, in);
  CheckedAttention checked{sizes, problem_of(in, sizes)};
  RowsLayout layout = input_layout(in);
  if (out.o == nullptr) {
    expect_rows(layout, sizes, in.q->dtype, sizes.V);
  } else {
    check_token_output(check, "o", *out.o, {sizes.B, sizes.T, sizes.H, sizes.V}, in.q->dtype,
                       sizes);
    layout.add_tokens(*out.o);
  }
  if (out.final_state != nullptr) {
    check.shape("final_state", *out.final_state, {sizes.sequences, sizes.H, sizes.K, sizes.V});
    check.dtype("final_state", *out.final_state, DType::kF32);
    check.output_or_in_place("final_state", *out.final_state, "initial_state");
  }
  checked.problem.ht = out.o == nullptr ? out.want_final_state : out.final_state != nullptr;
  set_layout(checked.problem, layout);
  return checked;
}

Lowered<RecurrentAttention> lower_forward(const AttentionInputs& in, const AttentionOutputs& out,
                                          Look look) {
  const CheckedAttention checked = check_forward(in, out, look);
  Lowered<RecurrentAttention> call{checked.problem, {}};
  set_inputs(call.args, in, checked.sizes);
  if (out.o != nullptr) call.args.o = with_batch(*out.o, 4);
  call.args.final_state = optional_view(out.final_state);
  return call;
}

}  // namespace attune::ops
