// Row softmax: an op that attune does not know, defined in a plugin.
//
//   y[r, c] = exp(x[r, c] - max_c x[r, c]) / sum_c exp(x[r, c] - max_c x[r, c])
//
// The tests take it through key, chain, tuner, database, command line and Plan.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>

#include <attune/core/op.hpp>
#include <attune/core/registry.hpp>

namespace row_softmax {

struct RowSoftmaxProblem {
  std::int64_t rows = 1;  // >= 0
  std::int64_t cols = 0;  // >= 1
};

struct RowSoftmaxArgs {
  const float* x = nullptr;  // [rows, cols]
  float* y = nullptr;        // [rows, cols]
};

struct RowSoftmax {
  static constexpr std::string_view kName = "row_softmax";
  static constexpr std::string_view kSummary = "softmax over the last dimension";
  using Problem = RowSoftmaxProblem;
  using Args = RowSoftmaxArgs;

  static constexpr auto fields() {
    return std::tuple{attune::field("rows", &Problem::rows, attune::Bucket::kPow2),
                      attune::field("cols", &Problem::cols)};
  }
  static void complete(Problem& problem);
  static std::unique_ptr<attune::Case> make_case(const Problem& problem,
                                                 const attune::Device& device, std::uint64_t seed);
  static std::unique_ptr<attune::Case> bind_case(const attune::TensorMap& tensors,
                                                 const attune::Attributes& attributes,
                                                 const attune::Device& device);
  static Problem reduced(const Problem& problem);
  static double bytes(const Problem& problem);
  static double flops(const Problem& problem);
};

/// Two kernels of different platforms: "reference" in double, and "rows" with a tunable unroll.
void register_row_softmax(attune::Registry& registry);

}  // namespace row_softmax
