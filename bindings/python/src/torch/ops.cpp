// torch.ops.attune: forward, backward, forward_on_pool and decode, over LibTorch's stable ABI (2.10
// and newer) and attune.h. Autograd, shapes for tracing and vmap are attune_kernels/torch.py's.
//
// What is "not given" is an absent optional; a final state that is not wanted is an undefined tensor, Python's
// None. Outputs and workspace come from torch's allocator on q's current stream, where the work is queued.
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <attune/attune.h>

#include "call.hpp"

namespace attune_torch {
namespace {

/// q, k and v have a rank that results can be made for, 4 or, a token a row, `least`; attune checks the
/// rest.
void check_ranks(const char* function, const Tensor& q, const Tensor& k, const Tensor& v,
                 std::int64_t least = 4) {
  if (q.dim() < least || q.dim() > 4 || k.dim() != q.dim() || v.dim() != q.dim()) {
    throw std::runtime_error(std::string(function) + ": q, k and v have " +
                             std::to_string(q.dim()) + ", " + std::to_string(k.dim()) + " and " +
                             std::to_string(v.dim()) + " dimensions, expected 4 each" +
                             (least == 4 ? "" : ", or 3"));
  }
}

Shape output_shape(const Tensor& q, const Tensor& v) {
  Shape shape(q);
  shape.back() = v.size(v.dim() - 1);
  return shape;
}

Shape state_shape(const Tensor& q, const Tensor& v, const OptionalTensor& cu_seqlens,
                  bool state_v_first) {
  if (cu_seqlens && (cu_seqlens->dim() != 1 || cu_seqlens->size(0) < 1)) {
    throw std::runtime_error("recurrent_attention: cu_seqlens is expected to be [N+1]");
  }
  const std::int64_t rank = q.dim();
  const std::int64_t keys = q.size(rank - 1);
  const std::int64_t values = v.size(rank - 1);
  return {cu_seqlens ? cu_seqlens->size(0) - 1 : q.size(0), q.size(rank - 2),
          state_v_first ? values : keys, state_v_first ? keys : values};
}

Tensors::Layout state_layout(bool state_v_first) {
  return state_v_first ? Tensors::Layout::kLastTwoSwapped : Tensors::Layout::kAsIs;
}

/// What forward and backward have in common.
attune_attention_args attention_args(Tensors& tensors, const Tensor& q, const Tensor& k,
                                     const Tensor& v, const OptionalTensor& g,
                                     const OptionalTensor& g_gamma, const OptionalTensor& gk,
                                     const OptionalTensor& gv, const OptionalTensor& slopes,
                                     const OptionalTensor& initial_state,
                                     const OptionalTensor& cu_seqlens,
                                     const OptionalTensor& cu_seqlens_host,
                                     const std::optional<double>& scale, std::int64_t layer_idx,
                                     std::int64_t num_layers, bool reverse, bool state_v_first) {
  attune_attention_args args = {};
  args.struct_size = sizeof args;
  args.flags = reverse ? ATTUNE_REVERSE : 0U;
  args.q = tensors.input("q", q);
  args.k = tensors.input("k", k);
  args.v = tensors.input("v", v);
  args.g = tensors.input("g", g);
  args.g_gamma = tensors.input("g_gamma", g_gamma);
  args.gk = tensors.input("gk", gk);
  args.gv = tensors.input("gv", gv);
  args.slopes = tensors.input("slopes", slopes);
  args.layer_idx = layer_idx;
  args.num_layers = num_layers;
  args.initial_state = tensors.state("initial_state", initial_state, state_layout(state_v_first));
  args.cu_seqlens = tensors.input("cu_seqlens", cu_seqlens);
  args.cu_seqlens_host = tensors.input("cu_seqlens_host", cu_seqlens_host);
  args.scale = scale ? &*scale : nullptr;
  return args;
}

std::tuple<Tensor, Tensor> forward(
    const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& g,
    const OptionalTensor& g_gamma, const OptionalTensor& gk, const OptionalTensor& gv,
    const OptionalTensor& slopes, const OptionalTensor& initial_state,
    const OptionalTensor& cu_seqlens, const OptionalTensor& cu_seqlens_host,
    std::optional<double> scale, std::int64_t layer_idx, std::int64_t num_layers, bool reverse,
    bool want_final_state, bool state_v_first, bool allow_tf32, const Text& platform,
    const Text& config) {
  check_ranks("recurrent_attention", q, k, v);
  Tensors tensors;
  attune_attention_args args =
      attention_args(tensors, q, k, v, g, g_gamma, gk, gv, slopes, initial_state, cu_seqlens,
                     cu_seqlens_host, scale, layer_idx, num_layers, reverse, state_v_first);
  const Tensor o = empty(q, output_shape(q, v));
  args.o = tensors.as_is("o", o);
  Tensor final_state;
  if (want_final_state) {
    final_state = empty(q, state_shape(q, v, cu_seqlens, state_v_first),
                        initial_state ? initial_state->scalar_type() : ScalarType::Float);
    args.final_state = tensors.as_is("final_state", final_state, state_layout(state_v_first));
  }
  const Call call(q, allow_tf32, platform, config);
  check(attune_attention(&args, call.get()));
  return {o, final_state};
}

/// The gradients of q, k and v, and of what is given of g, g_gamma, gk, gv, slopes and initial_state,
/// in this order.
std::vector<Tensor> backward(
    const OptionalTensor& d_o, const OptionalTensor& dfinal_state, const Tensor& q, const Tensor& k,
    const Tensor& v, const OptionalTensor& g, const OptionalTensor& g_gamma,
    const OptionalTensor& gk, const OptionalTensor& gv, const OptionalTensor& slopes,
    const OptionalTensor& initial_state, const OptionalTensor& cu_seqlens,
    const OptionalTensor& cu_seqlens_host, std::optional<double> scale, std::int64_t layer_idx,
    std::int64_t num_layers, bool reverse,
    bool /*want_final_state: as forward's, so that both take the same options*/, bool state_v_first,
    bool allow_tf32, const Text& platform, const Text& config) {
  check_ranks("recurrent_attention.backward", q, k, v);
  Tensors tensors;
  const attune_attention_args args =
      attention_args(tensors, q, k, v, g, g_gamma, gk, gv, slopes, initial_state, cu_seqlens,
                     cu_seqlens_host, scale, layer_idx, num_layers, reverse, state_v_first);
  attune_attention_grads grads = {};
  grads.struct_size = sizeof grads;
  grads.d_o = tensors.input("d_o", d_o);
  grads.dfinal_state = tensors.state("dfinal_state", dfinal_state, state_layout(state_v_first));

  std::vector<Tensor> made;
  made.reserve(9);
  const auto gradient =
      [&](const char* name, const OptionalTensor& of, std::optional<ScalarType> type,
          Tensors::Layout layout = Tensors::Layout::kAsIs) -> const attune_tensor* {
    if (!of) return nullptr;
    return tensors.as_is(name, made.emplace_back(empty(q, Shape(*of), type)), layout);
  };
  grads.dq = gradient("dq", q, std::nullopt);
  grads.dk = gradient("dk", k, std::nullopt);
  grads.dv = gradient("dv", v, std::nullopt);
  grads.dg = gradient("dg", g, ScalarType::Float);
  grads.dg_gamma = gradient("dg_gamma", g_gamma, ScalarType::Float);
  grads.dgk = gradient("dgk", gk, ScalarType::Float);
  grads.dgv = gradient("dgv", gv, ScalarType::Float);
  grads.dslopes = gradient("dslopes", slopes, ScalarType::Float);
  grads.dinitial_state =
      gradient("dinitial_state", initial_state, ScalarType::Float, state_layout(state_v_first));
  const Call call(q, allow_tf32, platform, config);
  check(attune_attention_backward(&args, &grads, call.get()));
  return made;
}

/// attune_attention_args or attune_decode_args: states of 16 bits are rounded at random with a
/// seed.
template <class Args>
void set_rounding(Args& args, std::optional<std::int64_t> state_seed) {
  if (!state_seed) return;
  args.flags |= ATTUNE_STOCHASTIC_STATES;
  args.state_seed = static_cast<std::uint64_t>(*state_seed);
}

Tensor forward_on_pool(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& states,
                       const OptionalTensor& g, const OptionalTensor& g_gamma,
                       const OptionalTensor& gk, const OptionalTensor& gv,
                       const OptionalTensor& slopes, const OptionalTensor& cu_seqlens,
                       const OptionalTensor& cu_seqlens_host, const OptionalTensor& initial_slots,
                       const OptionalTensor& final_slots, const OptionalTensor& snapshot_slots,
                       std::int64_t snapshot_every, std::optional<std::int64_t> state_seed,
                       std::optional<double> scale, std::int64_t layer_idx, std::int64_t num_layers,
                       bool reverse, bool state_v_first, bool allow_tf32, const Text& platform,
                       const Text& config) {
  check_ranks("recurrent_attention", q, k, v);
  Tensors tensors;
  attune_attention_args args =
      attention_args(tensors, q, k, v, g, g_gamma, gk, gv, slopes, std::nullopt, cu_seqlens,
                     cu_seqlens_host, scale, layer_idx, num_layers, reverse, state_v_first);
  args.states = tensors.as_is("states", states, state_layout(state_v_first));
  args.initial_slots = tensors.input("initial_slots", initial_slots);
  args.final_slots = tensors.input("final_slots", final_slots);
  args.snapshot_slots = tensors.input("snapshot_slots", snapshot_slots);
  args.snapshot_every = snapshot_every;
  set_rounding(args, state_seed);
  const Tensor o = empty(q, output_shape(q, v));
  args.o = tensors.as_is("o", o);
  const Call call(q, allow_tf32, platform, config);
  check(attune_attention(&args, call.get()));
  return o;
}

Tensor decode(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& state,
              const OptionalTensor& g, const OptionalTensor& g_gamma, const OptionalTensor& gk,
              const OptionalTensor& gv, const OptionalTensor& slopes,
              const OptionalTensor& slot_indices, const OptionalTensor& kept_slots,
              const OptionalTensor& accepted, const OptionalTensor& committed_k,
              const OptionalTensor& committed_v, const OptionalTensor& committed_g,
              const OptionalTensor& committed_gk, const OptionalTensor& committed_gv,
              const OptionalTensor& committed_accepted, std::optional<std::int64_t> state_seed,
              std::optional<double> scale, std::int64_t layer_idx, std::int64_t num_layers,
              bool state_v_first, bool allow_tf32, const Text& platform, const Text& config) {
  check_ranks("recurrent_decode", q, k, v, 3);
  Tensors tensors;
  attune_decode_args args = {};
  args.struct_size = sizeof args;
  args.q = tensors.input("q", q);
  args.k = tensors.input("k", k);
  args.v = tensors.input("v", v);
  args.g = tensors.input("g", g);
  args.g_gamma = tensors.input("g_gamma", g_gamma);
  args.gk = tensors.input("gk", gk);
  args.gv = tensors.input("gv", gv);
  args.slopes = tensors.input("slopes", slopes);
  args.layer_idx = layer_idx;
  args.num_layers = num_layers;
  args.state = tensors.as_is("state", state, state_layout(state_v_first));
  args.slot_indices = tensors.input("slot_indices", slot_indices);
  args.kept_slots = tensors.input("kept_slots", kept_slots);
  args.accepted = tensors.input("accepted", accepted);
  args.committed_k = tensors.input("committed_k", committed_k);
  args.committed_v = tensors.input("committed_v", committed_v);
  args.committed_g = tensors.input("committed_g", committed_g);
  args.committed_gk = tensors.input("committed_gk", committed_gk);
  args.committed_gv = tensors.input("committed_gv", committed_gv);
  args.committed_accepted = tensors.input("committed_accepted", committed_accepted);
  set_rounding(args, state_seed);
  args.scale = scale ? &*scale : nullptr;
  const Tensor o = empty(q, output_shape(q, v));
  args.o = tensors.as_is("o", o);
  const Call call(q, allow_tf32, platform, config);
  check(attune_decode(&args, call.get()));
  return o;
}

}  // namespace
}  // namespace attune_torch

// The arguments of the operators, in torch's schema language. What a caller leaves out at the end is not
// converted from Python: a call with q, k and v alone costs the host 2 us less than one that spells
// all out.
#define ATTUNE_GATES \
  "Tensor? g=None, Tensor? g_gamma=None, Tensor? gk=None, Tensor? gv=None, Tensor? slopes=None"
#define ATTUNE_BOUNDS "Tensor? cu_seqlens=None, Tensor? cu_seqlens_host=None"
#define ATTUNE_DECAY "float? scale=None, int layer_idx=0, int num_layers=0"
#define ATTUNE_CHOICES \
  "bool state_v_first=False, bool allow_tf32=False, str platform=\"\", str config=\"\""
#define ATTUNE_ATTENTION_ARGUMENTS                                                             \
  "Tensor q, Tensor k, Tensor v, " ATTUNE_GATES ", Tensor? initial_state=None, " ATTUNE_BOUNDS \
  ", " ATTUNE_DECAY ", bool reverse=False, bool want_final_state=False, " ATTUNE_CHOICES

STABLE_TORCH_LIBRARY(attune, library) {
  library.def("forward(" ATTUNE_ATTENTION_ARGUMENTS ") -> (Tensor, Tensor)");
  library.def("backward(Tensor? d_o, Tensor? dfinal_state, " ATTUNE_ATTENTION_ARGUMENTS
              ") -> Tensor[]");
  library.def(
      "forward_on_pool(Tensor q, Tensor k, Tensor v, Tensor(a!) states, " ATTUNE_GATES
      ", " ATTUNE_BOUNDS
      ", Tensor? initial_slots=None, Tensor? final_slots=None, "
      "Tensor? snapshot_slots=None, int snapshot_every=0, int? state_seed=None, " ATTUNE_DECAY
      ", bool reverse=False, " ATTUNE_CHOICES ") -> Tensor");
  library.def("decode(Tensor q, Tensor k, Tensor v, Tensor(a!) state, " ATTUNE_GATES
              ", Tensor? slot_indices=None, Tensor? kept_slots=None, Tensor? accepted=None, "
              "Tensor? committed_k=None, Tensor? committed_v=None, Tensor? committed_g=None, "
              "Tensor? committed_gk=None, Tensor? committed_gv=None, "
              "Tensor? committed_accepted=None, int? state_seed=None, " ATTUNE_DECAY
              ", " ATTUNE_CHOICES ") -> Tensor");
}

// attune.h finds the device from the tensors.
STABLE_TORCH_LIBRARY_IMPL(attune, CPU, library) {
  library.impl("forward", TORCH_BOX(&attune_torch::forward));
  library.impl("backward", TORCH_BOX(&attune_torch::backward));
  library.impl("forward_on_pool", TORCH_BOX(&attune_torch::forward_on_pool));
  library.impl("decode", TORCH_BOX(&attune_torch::decode));
}

STABLE_TORCH_LIBRARY_IMPL(attune, CUDA, library) {
  library.impl("forward", TORCH_BOX(&attune_torch::forward));
  library.impl("backward", TORCH_BOX(&attune_torch::backward));
  library.impl("forward_on_pool", TORCH_BOX(&attune_torch::forward_on_pool));
  library.impl("decode", TORCH_BOX(&attune_torch::decode));
}
