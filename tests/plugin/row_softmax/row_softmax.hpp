// Row softmax: an op that attune does not know, with the kernel that says what is right.
//
//   y[r, c] = exp(x[r, c] - max_c x[r, c]) / sum_c exp(x[r, c] - max_c x[r, c])
//
//   tensor  shape        type  notes
//   x       [rows,cols]  f32   cols contiguous
//   y       [rows,cols]  f32   cols contiguous; may be exactly x
//
// The tests take it through key, chain, tuner, database, command line and Plan.
#pragma once

#include <algorithm>
#include <cmath>

#include <attune/core/operand_case.hpp>
#include <attune/core/registry.hpp>

namespace row_softmax {

struct RowSoftmaxProblem {
  std::int64_t rows = 1;  // >= 0
  std::int64_t cols = 0;  // >= 1
};

struct RowSoftmaxArgs {
  attune::ConstTensorView x;
  attune::TensorView y;
};

struct RowSoftmax : attune::OperandOp<RowSoftmax> {
  static constexpr std::string_view kName = "row_softmax";
  static constexpr std::string_view kSummary = "softmax over the last dimension";
  using Problem = RowSoftmaxProblem;
  using Args = RowSoftmaxArgs;

  static constexpr auto fields() {
    return std::tuple{attune::field("rows", &Problem::rows, attune::Bucket::kPow2),
                      attune::field("cols", &Problem::cols)};
  }
  static constexpr auto operands() {
    const auto dims = attune::dims("rows", "cols");
    return std::tuple{attune::input("x", &Args::x, dims).f32().contiguous(),
                      attune::output("y", &Args::y, dims).f32().contiguous().may_be("x")};
  }
  static constexpr auto sizes() { return std::array{attune::size_rule("cols").at_least(1)}; }
  static Problem reduced(const Problem& p) { return {std::min<std::int64_t>(p.rows, 3), p.cols}; }
  static double flops(const Problem& p) { return 5.0 * double(p.rows) * double(p.cols); }
};

/// Row `row` of x and y.
inline const float* row_of(const attune::ConstTensorView& x, std::int64_t row) {
  return static_cast<const float*>(x.data) + row * x.stride(0);
}
inline float* row_of(const attune::TensorView& y, std::int64_t row) {
  return static_cast<float*>(y.data) + row * y.stride(0);
}

inline void softmax_in_double(const RowSoftmaxProblem& problem, const RowSoftmaxArgs& args) {
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    const float* x = row_of(args.x, row);
    float* y = row_of(args.y, row);
    const double largest = *std::max_element(x, x + problem.cols);
    double sum = 0;
    for (std::int64_t c = 0; c < problem.cols; ++c) sum += std::exp(x[c] - largest);
    for (std::int64_t c = 0; c < problem.cols; ++c)
      y[c] = static_cast<float>(std::exp(x[c] - largest) / sum);
  }
}

}  // namespace row_softmax
