// The checks of a call's inputs.
#include "attention_call.hpp"
#include "host_indices.hpp"
#include "input_rules.hpp"

namespace attune::ops {
namespace {

/// The extent that is `from_end` places before the last.
std::int64_t size_from_end(const ConstTensorView& view, int from_end) {
  return view.size(view.rank() - 1 - from_end);
}

void check_q(CallCheck& check, const ConstTensorView& q, AttentionSizes& sizes) {
  check.shape("q", q, {"B", "T", "H", "K"}, sizes.batch);
  check_io_dtype(check, "q", q);
  sizes.B = q.rank() == 4 ? q.size(0) : 1;
  sizes.T = size_from_end(q, 2);
  sizes.H = size_from_end(q, 1);
  sizes.K = size_from_end(q, 0);
  if (sizes.packed && sizes.B != 1) {
    check.refuse("q", "shape ", q.shape, ", expected B = 1 with cu_seqlens");
  }
  if (sizes.H < 1) check.refuse("q", "shape ", q.shape, ", expected at least one head");
  if (sizes.K < 1) check.refuse("q", "shape ", q.shape, ", expected K >= 1");
  check.dense_rows("q", q);
  check.input("q", q);
}

void check_k_and_v(CallCheck& check, const AttentionInputs& in, AttentionSizes& sizes) {
  const ConstTensorView& k = *in.k;
  check.shape("k", k, {sizes.B, sizes.T, "Hkv", sizes.K}, sizes.batch);
  check.dtype("k", k, in.q->dtype, " (q's)");
  sizes.Hkv = size_from_end(k, 1);
  check_kv_heads(check, sizes.Hkv, sizes.H);
  check.dense_rows("k", k);
  check.input("k", k);

  const ConstTensorView& v = *in.v;
  check.shape("v", v, {sizes.B, sizes.T, sizes.Hkv, "V"}, sizes.batch);
  check.dtype("v", v, in.q->dtype, " (q's)");
  sizes.V = size_from_end(v, 0);
  if (sizes.V < 1) check.refuse("v", "shape ", v.shape, ", expected V >= 1");
  check.dense_rows("v", v);
  check.input("v", v);
}

void check_channel_gate(CallCheck& check, std::string_view name, const ConstTensorView& gate,
                        std::int64_t channels, const AttentionSizes& sizes, DType io) {
  check.shape(name, gate, {sizes.B, sizes.T, sizes.H, channels}, sizes.batch);
  check_gate_dtype(check, name, gate, io);
  check.dense_rows(name, gate);
  check.input(name, gate);
}

/// Whether g is [B, T, H, K]. Among packed tensors without their batch dimension that is rank 3,
/// but [1, T, H] is then still a decay for each head.
bool is_per_channel(const ConstTensorView& g, const AttentionInputs& in,
                    const AttentionSizes& sizes) {
  if (g.rank() != 3 || sizes.batch == Batch::kRequired) return g.rank() == 4;
  const bool per_head = g.size(0) == 1 && g.size(1) == sizes.T && g.size(2) == sizes.H;
  return in.q->rank() == 3 && !per_head;
}

void check_gates(CallCheck& check, const AttentionInputs& in, AttentionSizes& sizes) {
  const DType io = in.q->dtype;
  if (in.g != nullptr) {
    sizes.g_per_channel = is_per_channel(*in.g, in, sizes);
    if (sizes.g_per_channel && in.canonical) {
      check.refuse("g", "shape ", in.g->shape, ", expected [B, T, H] in lowered arguments");
    }
    if (sizes.g_per_channel && in.gk != nullptr) {
      check.refuse("g", "shape ", in.g->shape, " has a decay for each key channel, expected ",
                   "[B, T, H] together with gk");
    }
    if (sizes.g_per_channel) {
      check_channel_gate(check, "g", *in.g, sizes.K, sizes, io);
    } else {
      check.shape("g", *in.g, {sizes.B, sizes.T, sizes.H}, sizes.batch);
      check_gate_dtype(check, "g", *in.g, io);
      check.input("g", *in.g);
    }
  }
  if (in.gk != nullptr) check_channel_gate(check, "gk", *in.gk, sizes.K, sizes, io);
  if (in.gv != nullptr) check_channel_gate(check, "gv", *in.gv, sizes.V, sizes, io);
}

/// What can be said before q is known: whether sequences are packed, and how many.
void check_cu_seqlens_shape(CallCheck& check, const AttentionInputs& in, AttentionSizes& sizes) {
  if (in.cu_seqlens == nullptr) {
    if (in.cu_seqlens_host != nullptr) {
      check.refuse("cu_seqlens_host", "given without cu_seqlens");
    }
    return;
  }
  check.shape("cu_seqlens", *in.cu_seqlens, {"N + 1"});
  check.index_dtype("cu_seqlens", *in.cu_seqlens);
  sizes.packed = true;
  if (!in.canonical) sizes.batch = Batch::kMayDrop;
  sizes.sequences = in.cu_seqlens->size(0) - 1;
  if (sizes.sequences < 1) {
    check.refuse("cu_seqlens", "shape ", in.cu_seqlens->shape, ", expected at least 2 values");
  }
}

void check_cu_seqlens_tensors(CallCheck& check, const AttentionInputs& in,
                              const AttentionSizes& sizes) {
  if (in.cu_seqlens == nullptr) return;
  check.input("cu_seqlens", *in.cu_seqlens);
  const bool readable = check.look() == Look::kAll && in.cu_seqlens->device == DeviceId{};
  if (readable) check_cu_seqlens(check, "cu_seqlens", *in.cu_seqlens, sizes.T);

  if (in.cu_seqlens_host == nullptr) return;
  const ConstTensorView& host = *in.cu_seqlens_host;
  check.shape("cu_seqlens_host", host, {sizes.sequences + 1});
  check.index_dtype("cu_seqlens_host", host);
  check.host_input("cu_seqlens_host", host);
  if (check.look() != Look::kAll) return;
  check_cu_seqlens(check, "cu_seqlens_host", host, sizes.T);
  if (readable) {
    check_same_indices(check, "cu_seqlens_host", host, "cu_seqlens", *in.cu_seqlens);
  }
}

void check_state(CallCheck& check, std::string_view name, const ConstTensorView& state,
                 const AttentionSizes& sizes) {
  check.shape(name, state, {sizes.sequences, sizes.H, sizes.K, sizes.V});
  check.dtype(name, state, DType::kF32);
  check.input(name, state);
}

void check_products(const CallCheck& check, const AttentionInputs& in,
                    const AttentionSizes& sizes) {
  if (!fits_memory({sizes.B, sizes.T, sizes.H, sizes.K})) {
    check.refuse("q", "shape ", in.q->shape, " has more than 2^63 - 1 bytes");
  }
  if (!fits_memory({sizes.B, sizes.T, sizes.H, sizes.V})) {
    check.refuse("v", "shape ", in.v->shape, " makes an o of more than 2^63 - 1 bytes");
  }
  if (!fits_memory({sizes.sequences, sizes.H, sizes.K, sizes.V})) {
    check.refuse("v", "shape ", in.v->shape, " makes states of more than 2^63 - 1 bytes");
  }
}

}  // namespace

AttentionSizes check_inputs(CallCheck& check, const AttentionInputs& in) {
  AttentionSizes sizes;
  check_cu_seqlens_shape(check, in, sizes);
  check_q(check, *in.q, sizes);
  if (!sizes.packed) sizes.sequences = sizes.B;
  check_k_and_v(check, in, sizes);
  check_products(check, in, sizes);
  check_gates(check, in, sizes);
  check_decay(check, in.decay, in.canonical ? DecayShape::kCanonical : DecayShape::kSlopesOfHeads,
              sizes.sequences, sizes.H);
  if (in.initial_state != nullptr) check_state(check, "initial_state", *in.initial_state, sizes);
  check_cu_seqlens_tensors(check, in, sizes);
  check_scale(check, in.scale);
  return sizes;
}

Extents output_shape(const AttentionInputs& in, const AttentionSizes& sizes) {
  Extents shape = in.q->shape;
  shape[shape.rank() - 1] = sizes.V;
  return shape;
}

AttentionSizes check_inputs(const AttentionInputs& in) {
  CallCheck check(in.op, Look::kAll);
  return check_inputs(check, in);
}

}  // namespace attune::ops
