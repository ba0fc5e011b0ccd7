#include "support/gate_gradients.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include <gtest/gtest.h>

#include <attune/core/params.hpp>

#include "support/reference_kernels.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttention;
using ops::RecurrentAttentionBackward;
using Args = ops::RecurrentAttentionBackwardArgs;
using Problem = ops::RecurrentAttentionProblem;
using Values = std::vector<double>;

const Args& args_of(const Case& made) { return *static_cast<const Args*>(made.args()); }

Values values_on(const ConstTensorView& view, const Device& device) {
  return to_doubles(to_host(view, device).view());
}

/// Sets a dense input of a case, which owns it and shows it as const.
void write(const ConstTensorView& to, const Values& values, const Device& device) {
  Tensor host(to.dtype, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(values[i]);
    if (to.dtype == DType::kF32) host.values<float>()[i] = value;
    if (to.dtype == DType::kF16) host.values<f16>()[i] = f16(value);
    if (to.dtype == DType::kBF16) host.values<bf16>()[i] = bf16(value);
  }
  device.copy_to_device(const_cast<void*>(to.data), host.view().data, host.bytes(), nullptr);
  device.synchronize(nullptr);
}

void set_gates(const Args& args, float log_decay, const Device& device) {
  const auto fill = [&](const ConstTensorView& gate, std::int64_t count) {
    write(gate, Values(static_cast<std::size_t>(count), log_decay), device);
  };
  for (const auto& gate : {args.g, args.gk, args.gv}) {
    if (gate) fill(*gate, element_count(gate->shape));
  }
  const bool has_gamma = args.gamma.source == ops::ConstantDecay::Source::kValues;
  if (has_gamma) fill(args.gamma.values, args.gamma.values.size(1));  // sequences share them
}

void copy_inputs(const Args& from, const Device& device, const Args& to) {
  const auto copy = [&](const auto& source, const auto& target) {
    if (target) write(*target, values_on(*source, device), cpu_device());
  };
  using View = std::optional<ConstTensorView>;
  copy(View(from.q), View(to.q));
  copy(View(from.k), View(to.k));
  copy(View(from.v), View(to.v));
  copy(from.initial_state, to.initial_state);
  copy(from.d_o, to.d_o);
  copy(from.dfinal_state, to.dfinal_state);
}

Values product(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] *= b[i];
  return a;
}

/// [..., count, inner] summed over its last dimension but one.
Values sums(const Values& of, std::int64_t count, std::int64_t inner = 1) {
  Values result(of.size() / static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < of.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i);
    result[static_cast<std::size_t>(place / (count * inner) * inner + place % inner)] += of[i];
  }
  return result;
}

double rms(const Values& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return values.empty() ? 0 : std::sqrt(squares / static_cast<double>(values.size()));
}

}  // namespace

ConstantGates::ConstantGates(const KernelOnDevice& on, ProblemRef problem, float log_decay)
    : on_(on),
      problem_(problem.as<RecurrentAttentionBackward>()),
      is_f32_(problem_.dtype == DType::kF32),
      inputs_(on.op->make_case(problem, *on.device, 5)) {
  problem_.dtype = DType::kF32;
  formula_ = RecurrentAttentionBackward::make_case(problem_, cpu_device(), 0);
  set_gates(args_of(*inputs_), log_decay, *on.device);
  set_gates(args_of(*formula_), log_decay, cpu_device());
  copy_inputs(args_of(*inputs_), *on.device, args_of(*formula_));
  run_formula();
}

void ConstantGates::run_formula() {
  const Args& args = args_of(*formula_);
  run_reference<RecurrentAttentionBackward>(problem_, args);
  expected_ = copy_outputs(*formula_, cpu_device());

  Problem forward = problem_;
  forward.ht = forward.d_o = true;
  Tensor o(DType::kF32, {problem_.B, problem_.T, problem_.H, problem_.V});
  Tensor state(DType::kF32, {problem_.B, problem_.H, problem_.K, problem_.V});
  RecurrentAttention::Args into{};
  into.q = args.q;
  into.k = args.k;
  into.v = args.v;
  into.g = args.g;
  into.gamma = args.gamma;
  into.gk = args.gk;
  into.gv = args.gv;
  into.initial_state = args.initial_state;
  into.scale = args.scale;
  into.o = o.view();
  into.final_state = state.view();
  run_reference<RecurrentAttention>(forward, into);
  o_ = to_doubles(o.view());
  final_state_ = to_doubles(state.view());
}

TensorMap ConstantGates::run(const ConfigBlob& config) {
  return run_on(*inputs_, on_, config, std::byte{0xff});
}

/// q dq or o do, summed over what the gate has no index of.
std::vector<double> ConstantGates::summands(const std::string& gradient) const {
  const Args& args = args_of(*formula_);
  if (gradient == "dgv") return args.d_o ? product(o_, to_doubles(*args.d_o)) : Values{};
  const Values of_channels = product(to_doubles(args.q), to_doubles(args.dq));
  if (gradient == "dgk") return of_channels;
  const Values of_tokens = sums(of_channels, problem_.K);
  return gradient == "dg" ? of_tokens : sums(of_tokens, problem_.B * problem_.T, problem_.H);
}

/// final_state dfinal_state, likewise.
std::vector<double> ConstantGates::final_summands(const std::string& gradient) const {
  const Args& args = args_of(*formula_);
  if (!args.dfinal_state) return {};
  const Values of_both = product(final_state_, to_doubles(*args.dfinal_state));
  if (gradient == "dgv") return sums(of_both, problem_.K, problem_.V);
  const Values of_keys = sums(of_both, problem_.V);
  if (gradient == "dgk") return of_keys;
  const Values of_heads = sums(of_keys, problem_.K);
  if (gradient == "dg") return of_heads;
  Values of_tokens = sums(of_heads, problem_.B, problem_.H);  // each token has what its head has
  for (double& value : of_tokens) value *= static_cast<double>(problem_.T);
  return of_tokens;
}

std::vector<GradientError> ConstantGates::errors(const TensorMap& got) const {
  const double tensor = is_f32_ ? 2e-5 : 5e-3;
  const double gate = is_f32_ ? 1e-4 : 2e-2;
  std::vector<GradientError> errors;
  for (const auto& [name, expected] : expected_) {
    const Values x = to_doubles(got.at(name).view());
    const Values e = to_doubles(expected.view());
    Values difference;
    std::ranges::transform(x, e, std::back_inserter(difference), std::minus<>());
    double allowed = tensor * rms(e);
    if (name.starts_with("dg")) {
      const double of_summands = rms(summands(name)) + rms(final_summands(name));
      allowed = std::max(gate * rms(e), tensor * of_summands);
    }
    // f32 has no digits below it.
    allowed = std::max<double>(allowed, std::numeric_limits<float>::min());
    errors.push_back({.name = name, .rms = rms(difference), .allowed = allowed});
  }
  return errors;
}

int expect_gate_gradients_within_bounds(const KernelOnDevice& on, const DeviceInfo& info) {
  int count = 0;
  for (const char* const gate : {"g", "gamma", "gk", "gv", "g+gk", "g+gamma+gk+gv"}) {
    for (const char* const given : {"", " h0=yes ht=yes reverse=yes", " ht=yes do=no"}) {
      for (const char* const dtype : {"f32", "bf16"}) {
        const std::string text =
            str("B=1 T=200 H=2 Hkv=1 K=64 V=64 dtype=", dtype, " gate=", gate, given);
        const AnyProblem problem = on.op->parse(parse_params(text, ' '));
        if (!on.kernel->erased_supports(problem, info)) continue;
        const ConfigBlob config = on.kernel->erased_heuristic(problem, info);
        for (const float log_decay : {-1.0F, -5.0F, -8.0F, -12.0F, -40.0F}) {
          SCOPED_TRACE(str(on, ", ", text, ", every gate ", log_decay));
          ConstantGates made(on, problem, log_decay);
          for (const GradientError& error : made.errors(made.run(config))) {
            EXPECT_LE(error.rms, error.allowed) << error;
          }
          ++count;
        }
      }
    }
  }
  return count;
}

}  // namespace attune::test
