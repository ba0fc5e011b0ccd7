#include "decode_call.hpp"
#include "host_indices.hpp"
#include "input_rules.hpp"
#include "rows_layout.hpp"

namespace attune::ops {
namespace {

struct DecodeSizes {
  std::int64_t B = 0, H = 0, Hkv = 0, K = 0, V = 0, S = 0;
};

void check_q(CallCheck& check, const ConstTensorView& q, DecodeSizes& sizes) {
  check.shape("q", q, {"B", "H", "K"});
  check_io_dtype(check, "q", q);
  sizes.B = q.size(0);
  sizes.H = q.size(1);
  sizes.K = q.size(2);
  if (sizes.H < 1) check.refuse("q", "shape ", q.shape, ", expected at least one head");
  if (sizes.K < 1) check.refuse("q", "shape ", q.shape, ", expected K >= 1");
  check.dense_rows("q", q);
  check.input("q", q);
}

void check_k_and_v(CallCheck& check, const DecodeInputs& in, DecodeSizes& sizes) {
  const ConstTensorView& k = *in.k;
  check.shape("k", k, {sizes.B, "Hkv", sizes.K});
  check.dtype("k", k, in.q->dtype, " (q's)");
  sizes.Hkv = k.size(1);
  check_kv_heads(check, sizes.Hkv, sizes.H);
  check.dense_rows("k", k);
  check.input("k", k);

  const ConstTensorView& v = *in.v;
  check.shape("v", v, {sizes.B, sizes.Hkv, "V"});
  check.dtype("v", v, in.q->dtype, " (q's)");
  sizes.V = v.size(2);
  if (sizes.V < 1) check.refuse("v", "shape ", v.shape, ", expected V >= 1");
  check.dense_rows("v", v);
  check.input("v", v);
}

void check_gates(CallCheck& check, const DecodeInputs& in, const DecodeSizes& sizes) {
  const DType io = in.q->dtype;
  if (in.g != nullptr) {
    check.shape("g", *in.g, {sizes.B, sizes.H});
    check_gate_dtype(check, "g", *in.g, io);
    check.input("g", *in.g);
  }
  const auto channel_gate = [&](std::string_view name, const ConstTensorView* gate,
                                std::int64_t channels) {
    if (gate == nullptr) return;
    check.shape(name, *gate, {sizes.B, sizes.H, channels});
    check_gate_dtype(check, name, *gate, io);
    check.dense_rows(name, *gate);
    check.input(name, *gate);
  };
  channel_gate("gk", in.gk, sizes.K);
  channel_gate("gv", in.gv, sizes.V);
  check_decay(check, in.decay, in.canonical ? DecayShape::kCanonical : DecayShape::kHeads, 1,
              sizes.H);
}

void check_slots(CallCheck& check, const DecodeInputs& in, const DecodeSizes& sizes) {
  if (in.slot_indices == nullptr) {
    if (sizes.S >= sizes.B) return;
    check.refuse(in.state_name, sizes.S, " slots, expected at least one for each of ", sizes.B,
                 " rows without slot_indices");
  }
  const ConstTensorView& slots = *in.slot_indices;
  check.shape("slot_indices", slots, {sizes.B});
  check.index_dtype("slot_indices", slots);
  check.input("slot_indices", slots);
  if (check.look() == Look::kAll && slots.device == DeviceId{}) {
    check_slot_indices(check, "slot_indices", slots, sizes.S);
  }
}

DecodeSizes check_inputs(CallCheck& check, const DecodeInputs& in) {
  DecodeSizes sizes;
  check_q(check, *in.q, sizes);
  check_k_and_v(check, in, sizes);
  check_gates(check, in, sizes);
  const TensorView& state = *in.state;
  check.shape(in.state_name, state, {"S", sizes.H, sizes.K, sizes.V});
  check.dtype(in.state_name, state, DType::kF32);
  sizes.S = state.size(0);
  if (!fits_memory({sizes.B, sizes.H, sizes.V})) {
    check.refuse("v", "shape ", in.v->shape, " makes an o of more than 2^63 - 1 bytes");
  }
  check_slots(check, in, sizes);
  check_scale(check, in.scale);
  check.output(in.state_name, state);
  return sizes;
}

RecurrentDecodeProblem problem_of(const DecodeInputs& in, const DecodeSizes& sizes) {
  const bool constant_decay = decay_values(in.decay) != nullptr || in.decay.layer_idx.has_value();
  RecurrentDecodeProblem problem;
  problem.B = sizes.B;
  problem.H = sizes.H;
  problem.Hkv = sizes.Hkv;
  problem.K = sizes.K;
  problem.V = sizes.V;
  problem.S = sizes.S;
  problem.dtype = in.q->dtype;
  problem.gates = gate_bits(in.g, constant_decay, in.gk, in.gv);
  problem.gate_dtype = gate_dtype_of({in.g, in.gk, in.gv});
  problem.slots = in.slot_indices != nullptr;
  problem.tf32 = in.allow_tf32 && in.q->dtype == DType::kF32;
  return problem;
}

RecurrentDecodeArgs args_of(const DecodeInputs& in) {
  RecurrentDecodeArgs args;
  args.q = *in.q;
  args.k = *in.k;
  args.v = *in.v;
  if (in.g != nullptr) args.g = *in.g;
  if (in.gk != nullptr) args.gk = *in.gk;
  if (in.gv != nullptr) args.gv = *in.gv;
  args.gamma = lowered_decay(in.decay, 1);
  if (in.slot_indices != nullptr) args.slot_indices = *in.slot_indices;
  args.scale = scale_or_default(in.scale, in.q->size(2));
  args.state = *in.state;
  return args;
}

}  // namespace

void check_decode_inputs(const DecodeInputs& in) {
  CallCheck check(in.op, Look::kAll);
  check_inputs(check, in);
}

RecurrentDecodeProblem check_decode(const DecodeInputs& in, const TensorView* o, Look look) {
  CallCheck check(in.op, look);
  const DecodeSizes sizes = check_inputs(check, in);
  RecurrentDecodeProblem problem = problem_of(in, sizes);
  RowsLayout layout;
  for (const ConstTensorView* rows : {in.q, in.k, in.v}) layout.add_dense(*rows);
  layout.add_dense(*in.state);
  if (o == nullptr) {
    layout.add_expected(sizes.B > 1 || (sizes.B == 1 && sizes.H > 1),
                        sizes.V * static_cast<std::int64_t>(size_of(in.q->dtype)));
  } else {
    check.shape("o", *o, {sizes.B, sizes.H, sizes.V});
    check.dtype("o", *o, in.q->dtype, " (q's)");
    check.dense_rows("o", *o);
    check.output("o", *o);
    layout.add_dense(*o);
  }
  problem.layout = layout.layout();
  problem.aligned = layout.aligned();
  return problem;
}

Lowered<RecurrentDecode> lower_decode(const DecodeInputs& in, const TensorView* o, Look look) {
  Lowered<RecurrentDecode> call{check_decode(in, o, look), args_of(in)};
  if (o != nullptr) call.args.o = *o;
  return call;
}

DecodeInputs inputs_of(const RecurrentDecodeArgs& args) {
  DecodeInputs inputs;
  inputs.op = RecurrentDecode::kName;
  inputs.q = &args.q;
  inputs.k = &args.k;
  inputs.v = &args.v;
  inputs.state = &args.state;
  inputs.g = pointer_to(args.g);
  inputs.gk = pointer_to(args.gk);
  inputs.gv = pointer_to(args.gv);
  inputs.decay = decay_inputs(args.gamma);
  inputs.slot_indices = pointer_to(args.slot_indices);
  inputs.scale = args.scale;
  inputs.canonical = true;
  return inputs;
}

}  // namespace attune::ops
