#include "support/recurrent_tensors.hpp"

#include <algorithm>
#include <limits>

namespace attune::test {
namespace {

using ops::ConstantDecay;
using ops::GateDType;
using ops::Layout;
using ops::RecurrentAttentionProblem;

constexpr std::int64_t kRowPadding = 3;

void set_element(const TensorView& to, std::int64_t offset, double value) {
  const auto rounded = static_cast<float>(value);
  switch (to.dtype) {
    case DType::kF32:
      static_cast<float*>(to.data)[offset] = rounded;
      break;
    case DType::kF16:
      static_cast<f16*>(to.data)[offset] = f16(rounded);
      break;
    case DType::kBF16:
      static_cast<bf16*>(to.data)[offset] = bf16(rounded);
      break;
    case DType::kI32:
      static_cast<std::int32_t*>(to.data)[offset] = static_cast<std::int32_t>(value);
      break;
    case DType::kI64:
      static_cast<std::int64_t*>(to.data)[offset] = static_cast<std::int64_t>(value);
      break;
  }
}

DType gate_dtype(const RecurrentAttentionProblem& problem, ops::Gate gate) {
  const bool io = problem.gate_dtype == GateDType::kIo ||
                  (problem.gate_dtype == GateDType::kMixed && gate != ops::kGateG);
  return io ? problem.dtype : DType::kF32;
}

}  // namespace

void assign(const TensorView& to, const std::vector<double>& values) {
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()); ++i) {
    std::int64_t rest = i;
    std::int64_t offset = 0;
    for (int dim = to.rank() - 1; dim >= 0; --dim) {
      offset += rest % to.size(dim) * to.stride(dim);
      rest /= to.size(dim);
    }
    set_element(to, offset, values[static_cast<std::size_t>(i)]);
  }
}

RecurrentAttentionProblem random_problem(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  RecurrentAttentionProblem p;
  p.N = pick(0, 2) == 0 ? pick(1, 4) : 0;
  p.B = p.N > 0 ? 1 : pick(1, 2);
  p.T = pick(0, 9);
  p.Hkv = pick(1, 2);
  p.H = p.Hkv * pick(1, 2);
  p.K = pick(1, 5);
  p.V = pick(0, 3) == 0 ? 9 : pick(1, 5);
  p.dtype = static_cast<DType>(pick(0, 2));
  p.gates = static_cast<std::int32_t>(pick(0, 15));
  p.gate_dtype = static_cast<GateDType>(pick(0, 2));
  p.h0 = pick(0, 1) == 1;
  p.ht = pick(0, 1) == 1;
  p.d_o = !p.ht || pick(0, 3) > 0;
  p.reverse = pick(0, 1) == 1;
  p.layout = static_cast<Layout>(pick(0, 2));
  p.aligned = false;
  return p;
}

RecurrentTensors::RecurrentTensors(const RecurrentAttentionProblem& of, std::uint64_t seed)
    : problem(of), random_(seed) {
  add_inputs();
  if (problem.N > 0) add_bounds();
  add_outputs();
}

TensorView RecurrentTensors::add(DType dtype, const Extents& shape, double value) {
  Extents stored = shape;
  const int last = shape.rank() - 1;
  const bool swapped = (problem.layout == Layout::kBhtd && shape.rank() >= 3 &&
                        shape[0] == problem.B && shape[1] == problem.T);
  if (swapped) std::swap(stored[1], stored[2]);
  if (problem.layout == Layout::kStrided) stored[last] += kRowPadding;
  memory_.emplace_back(dtype, stored);
  TensorView view = memory_.back().view();
  if (swapped) view = last == 3 ? view.permute({0, 2, 1, 3}) : view.permute({0, 2, 1});
  if (problem.layout == Layout::kStrided) view = view.slice(last, 0, shape[last]);
  assign(view, std::vector<double>(static_cast<std::size_t>(element_count(shape)), value));
  return view;
}

TensorView RecurrentTensors::add_random(DType dtype, const Extents& shape, double mean,
                                        double deviation) {
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  std::generate(values.begin(), values.end(), [&] { return normal(random_); });
  const TensorView view = add(dtype, shape, 0);
  assign(view, values);
  return view;
}

void RecurrentTensors::add_inputs() {
  const auto& p = problem;
  const std::int64_t sequences = p.sequences();
  forward.scale = 0.7;
  forward.q = add_random(p.dtype, {p.B, p.T, p.H, p.K}, 0, 1);
  forward.k = add_random(p.dtype, {p.B, p.T, p.Hkv, p.K}, 0, 1);
  forward.v = add_random(p.dtype, {p.B, p.T, p.Hkv, p.V}, 0, 1);
  const auto gate = [&](ops::Gate bit, const Extents& shape) -> std::optional<ConstTensorView> {
    if ((p.gates & bit) == 0) return std::nullopt;
    return add_random(gate_dtype(p, bit), shape, -0.4, 0.4);
  };
  forward.g = gate(ops::kGateG, {p.B, p.T, p.H});
  forward.gk = gate(ops::kGateGk, {p.B, p.T, p.H, p.K});
  forward.gv = gate(ops::kGateGv, {p.B, p.T, p.H, p.V});
  if ((p.gates & ops::kGateGamma) != 0) {
    forward.gamma.source = ConstantDecay::Source::kValues;
    forward.gamma.values = add_random(DType::kF32, {sequences, p.H}, -0.3, 0.2);
  }
  const Extents state = p.layout == Layout::kStrided ? Extents{sequences, p.H, p.V, p.K}
                                                     : Extents{sequences, p.H, p.K, p.V};
  const auto state_view = [&](const TensorView& stored) {
    return p.layout == Layout::kStrided ? stored.permute({0, 1, 3, 2}) : stored;
  };
  if (p.h0) forward.initial_state = state_view(add_random(DType::kF32, state, 0, 1));
  forward.final_state =
      state_view(add(DType::kF32, state, std::numeric_limits<double>::quiet_NaN()));
  if (p.d_o) backward.d_o = add_random(p.dtype, {p.B, p.T, p.H, p.V}, 0, 1);
  if (p.ht) backward.dfinal_state = state_view(add_random(DType::kF32, state, 0, 1));
}

void RecurrentTensors::add_bounds() {
  std::uniform_int_distribution<std::int64_t> cut(0, problem.T);
  std::vector<double> bounds{0, static_cast<double>(problem.T)};
  while (static_cast<std::int64_t>(bounds.size()) < problem.N + 1) {
    bounds.push_back(static_cast<double>(cut(random_)));
  }
  std::sort(bounds.begin(), bounds.end());
  const bool strided = problem.layout == Layout::kStrided;
  memory_.emplace_back(strided ? DType::kI64 : DType::kI32, Extents{2 * (problem.N + 1)});
  TensorView view = memory_.back().view();
  view.shape = Extents{problem.N + 1};
  view.strides = Extents{strided ? 2 : 1};
  assign(view, bounds);
  forward.cu_seqlens = view;
}

void RecurrentTensors::add_outputs() {
  const auto& p = problem;
  const double poison = std::numeric_limits<double>::quiet_NaN();
  auto& b = backward;
  b.q = forward.q;
  b.k = forward.k;
  b.v = forward.v;
  b.g = forward.g;
  b.gamma = forward.gamma;
  b.gk = forward.gk;
  b.gv = forward.gv;
  b.initial_state = forward.initial_state;
  b.cu_seqlens = forward.cu_seqlens;
  b.scale = forward.scale;
  forward.o = add(p.dtype, {p.B, p.T, p.H, p.V}, poison);
  b.dq = add(p.dtype, b.q.shape, poison);
  b.dk = add(p.dtype, b.k.shape, poison);
  b.dv = add(p.dtype, b.v.shape, poison);
  if (b.g) b.dg = add(DType::kF32, b.g->shape, poison);
  if (b.gk) b.dgk = add(DType::kF32, b.gk->shape, poison);
  if (b.gv) b.dgv = add(DType::kF32, b.gv->shape, poison);
  if ((p.gates & ops::kGateGamma) != 0) b.dgamma = add(DType::kF32, {p.sequences(), p.H}, poison);
  if (p.h0) b.dinitial_state = add(DType::kF32, b.initial_state->shape, poison);
}

DoubleRecurrence RecurrentTensors::as_doubles() const {
  const auto values = [](const std::optional<ConstTensorView>& view) {
    return view ? to_doubles(*view) : std::vector<double>{};
  };
  const auto& p = problem;
  DoubleRecurrence in{.B = p.B, .T = p.T, .H = p.H, .Hkv = p.Hkv, .K = p.K, .V = p.V};
  in.reverse = p.reverse;
  in.scale = forward.scale;
  in.q = to_doubles(forward.q);
  in.k = to_doubles(forward.k);
  in.v = to_doubles(forward.v);
  in.g = values(forward.g);
  in.gk = values(forward.gk);
  in.gv = values(forward.gv);
  if (forward.gamma.source != ConstantDecay::Source::kNone)
    in.gamma = to_doubles(forward.gamma.values);
  in.initial_state = values(forward.initial_state);
  in.d_o = values(backward.d_o);
  in.dfinal_state = values(backward.dfinal_state);
  for (std::int64_t n = 0; p.N > 0 && n <= p.N; ++n) {
    const std::int64_t at = n * forward.cu_seqlens->stride(0);
    in.cu_seqlens.push_back(forward.cu_seqlens->dtype == DType::kI64
                                ? static_cast<const std::int64_t*>(forward.cu_seqlens->data)[at]
                                : static_cast<const std::int32_t*>(forward.cu_seqlens->data)[at]);
  }
  return in;
}

RecurrentTensors gates_that_cancel(const ops::RecurrentAttentionProblem& problem, double log_decay,
                                   bool alternating) {
  RecurrentTensors tensors(problem, 11);
  const auto set = [&](const ConstTensorView& gates, double sign) {
    std::vector<double> logs(static_cast<std::size_t>(element_count(gates.shape)));
    const std::size_t of_token = logs.size() / static_cast<std::size_t>(problem.B * problem.T);
    for (std::size_t i = 0; i < logs.size(); ++i) {
      const bool turned = alternating && i / of_token % 2 == 1;
      logs[i] = (turned ? -sign : sign) * log_decay - static_cast<double>(i % 3) / 64;
    }
    // The tensors own what their views show as const.
    assign(TensorView(const_cast<void*>(gates.data), gates.dtype, gates.shape, gates.strides),
           logs);
  };
  if (tensors.forward.g) set(*tensors.forward.g, 1);
  if (tensors.forward.gk) set(*tensors.forward.gk, 1);
  set(*tensors.forward.gv, -1);
  return tensors;
}

}  // namespace attune::test
