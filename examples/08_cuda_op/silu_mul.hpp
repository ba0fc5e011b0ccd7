// An op of one's own, y[i] = silu(a[i]) * b[i] with silu(x) = x / (1 + exp(-x)), and the reference
// that every candidate of its kernels is checked against. examples/07_nvrtc_kernel compiles a
// kernel for it at run time, examples/08_cuda_op ahead of time.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>

#include <attune/core/operand_case.hpp>

namespace mine {

struct SiluMulProblem {
  std::int64_t n = 0;
};

struct SiluMulArgs {
  attune::ConstTensorView a, b;
  attune::TensorView y;
};

struct SiluMul : attune::OperandOp<SiluMul> {
  static constexpr std::string_view kName = "silu_mul";
  static constexpr std::string_view kSummary = "silu of one tensor times another";
  using Problem = SiluMulProblem;
  using Args = SiluMulArgs;

  static constexpr auto fields() {
    return std::tuple{attune::field("n", &Problem::n, attune::Bucket::kPow2)};
  }
  static constexpr auto operands() {
    const auto dims = attune::dims("n");
    return std::tuple{attune::input("a", &Args::a, dims).f32().contiguous(),
                      attune::input("b", &Args::b, dims).f32().contiguous(),
                      attune::output("y", &Args::y, dims).f32().contiguous()};
  }
  static constexpr auto sizes() { return std::array{attune::size_rule("n").at_least(1)}; }
  static Problem reduced(const Problem& p) { return {std::min<std::int64_t>(p.n, 4099)}; }
  static double flops(const Problem& p) { return 5.0 * static_cast<double>(p.n); }
};

/// On the host, in double.
inline void silu_mul_in_double(const SiluMulProblem& p, const SiluMulArgs& args) {
  const auto* a = static_cast<const float*>(args.a.data);
  const auto* b = static_cast<const float*>(args.b.data);
  auto* y = static_cast<float*>(args.y.data);
  for (std::int64_t i = 0; i < p.n; ++i) {
    const double x = a[i];
    y[i] = static_cast<float>(x / (1 + std::exp(-x)) * b[i]);
  }
}

}  // namespace mine
