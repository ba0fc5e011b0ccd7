// Cases of recurrent_decode and its alias, made up and from tensor files.
#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <attune/ops/lightning_decode.hpp>

#include "decode_call.hpp"
#include "file_inputs.hpp"
#include "made_inputs.hpp"
#include "op_case.hpp"

namespace attune::ops {
namespace {

using Problem = RecurrentDecodeProblem;

std::unique_ptr<Case> decode_case(CaseTensors tensors, const DecodeInputs& in,
                                  const Placement& placement) {
  check_decode_inputs(in);
  const TensorView* o =
      tensors.output("o", in.q->dtype, {in.q->size(0), in.q->size(1), in.v->size(2)}, placement);
  const Lowered<RecurrentDecode> call = lower_decode(in, o, Look::kAll);
  return std::make_unique<OpCase<RecurrentDecode>>(std::move(tensors), call);
}

/// Slots in no order, none of them twice; rows for which there is none are padding.
Tensor made_slots(std::int64_t rows, std::int64_t slots) {
  std::int64_t step = std::max<std::int64_t>(1, slots * 5 / 8);
  while (std::gcd(step, std::max<std::int64_t>(slots, 1)) != 1) --step;
  std::vector<std::int32_t> values;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t slot = row < slots ? (row + 1) * step % slots : -1;
    values.push_back(static_cast<std::int32_t>(slot));
  }
  return Tensor::of(values, {rows});
}

/// The inputs of a problem, one after the other, each from its own random stream.
DecodeInputs made_inputs(const Problem& p, CaseTensors& tensors, std::uint64_t seed) {
  RandomValues random(seed);
  const Placement placement = placement_of<RecurrentDecode>(p);
  const auto rows = [&](const char* name, std::int64_t heads, std::int64_t channels) {
    const Extents shape{p.B, heads, channels};
    return tensors.input(name, random.normal(p.dtype, shape), placement);
  };
  GateTypes types(p.gate_dtype, p.dtype);
  const auto gate = [&](Gate bit, const char* name, const Extents& shape) {
    if ((p.gates & bit) == 0) return static_cast<const ConstTensorView*>(nullptr);
    return tensors.input(name, made_log_decays(random, types.next(), shape));
  };
  DecodeInputs in;
  in.op = RecurrentDecode::kName;
  in.q = rows("q", p.H, p.K);
  in.k = rows("k", p.Hkv, p.K);
  in.v = rows("v", p.Hkv, p.V);
  in.g = gate(kGateG, "g", {p.B, p.H});
  in.gk = gate(kGateGk, "gk", {p.B, p.H, p.K});
  in.gv = gate(kGateGv, "gv", {p.B, p.H, p.V});
  if ((p.gates & kGateGamma) != 0) {
    in.decay.g_gamma = tensors.input("g_gamma", made_log_decays(random, DType::kF32, {p.H}));
  }
  if (p.slots) in.slot_indices = tensors.input("slot_indices", made_slots(p.B, p.S));
  in.state = tensors.updated("kv_cache", made_states(random, {p.S, p.H, p.K, p.V}), placement);
  in.allow_tf32 = p.tf32;
  return in;
}

constexpr std::array<std::string_view, 10> kRecurrentInputs{
    "q", "k", "v", "kv_cache", "slot_indices", "g", "g_gamma", "gk", "gv", "slopes"};
constexpr std::array<std::string_view, 7> kLightningInputs{
    "q", "k", "v", "kv_cache", "slot_indices", "g_gamma", "slopes"};

std::unique_ptr<Case> bind_decode(std::string_view op, std::span<const std::string_view> names,
                                  bool needs_constant_decay, const TensorMap& given,
                                  const Attributes& attributes, const Device& device) {
  CaseTensors tensors(device);
  FileInputs file(op, given, attributes, names, tensors);
  DecodeInputs in;
  in.op = op;
  in.q = file.required("q");
  in.k = file.required("k");
  in.v = file.required("v");
  in.g = file.optional("g");
  in.gk = file.optional("gk");
  in.gv = file.optional("gv");
  in.decay = file.decay(needs_constant_decay);
  in.slot_indices = file.optional("slot_indices");
  in.scale = file.number("scale");
  file.warn_of_unread_attributes();
  const Tensor* state = file.host("kv_cache");
  if (state == nullptr) throw InvalidArgument(str(op, ": kv_cache: not among the given tensors"));
  in.state = tensors.updated("kv_cache", copy_of(*state));
  in.state_name = "kv_cache";
  return decode_case(std::move(tensors), in, {});
}

}  // namespace

std::unique_ptr<Case> RecurrentDecode::make_case(const Problem& problem, const Device& device,
                                                 std::uint64_t seed) {
  Problem completed = problem;
  complete(completed);
  CaseTensors tensors(device);
  const DecodeInputs in = made_inputs(completed, tensors, seed);
  return decode_case(std::move(tensors), in, placement_of<RecurrentDecode>(completed));
}

std::unique_ptr<Case> RecurrentDecode::bind_case(const TensorMap& tensors,
                                                 const Attributes& attributes,
                                                 const Device& device) {
  return bind_decode(kName, kRecurrentInputs, false, tensors, attributes, device);
}

std::unique_ptr<Case> LightningDecode::bind_case(const TensorMap& tensors,
                                                 const Attributes& attributes,
                                                 const Device& device) {
  return bind_decode(kName, kLightningInputs, true, tensors, attributes, device);
}

}  // namespace attune::ops
