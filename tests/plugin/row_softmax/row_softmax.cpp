#include "row_softmax.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <attune/core/error.hpp>

namespace row_softmax {
namespace {

using attune::OutputCheck;
using attune::Tensor;
using attune::TensorMap;

class RowSoftmaxCase final : public attune::Case {
 public:
  RowSoftmaxCase(const RowSoftmaxProblem& problem, Tensor x)
      : problem_(problem), x_(std::move(x)), y_(attune::DType::kF32, {problem.rows, problem.cols}) {
    args_ = {x_.values<float>().data(), y_.values<float>().data()};
  }

  attune::ProblemRef problem() const override {
    return attune::ProblemRef::of<RowSoftmax>(problem_);
  }
  const void* args() const override { return &args_; }
  void reset(std::byte poison) override {
    if (y_.bytes() != 0) std::memset(y_.view().data, std::to_integer<int>(poison), y_.bytes());
  }
  std::vector<attune::NamedTensor> outputs() const override { return {{"y", y_.view()}}; }

  std::vector<OutputCheck> compare(const TensorMap& expected) const override {
    const std::vector<double> got = attune::to_doubles(y_.view());
    const auto found = expected.find("y");
    OutputCheck check{.name = "y", .tolerance = 2e-5};
    if (found == expected.end()) {
      check.passed =
          std::all_of(got.begin(), got.end(), [](double value) { return std::isfinite(value); });
      if (!check.passed) check.reason = "not finite";
      return {check};
    }
    check.error = attune::relative_rms_error(got, attune::to_doubles(found->second.view()));
    check.passed = check.error <= check.tolerance;
    if (!check.passed) check.reason = attune::str("error ", check.error);
    return {check};
  }

 private:
  RowSoftmaxProblem problem_;
  Tensor x_, y_;
  RowSoftmaxArgs args_;
};

}  // namespace

void RowSoftmax::complete(Problem& problem) {
  if (problem.cols < 1) throw attune::InvalidArgument("row_softmax: cols: expected at least 1");
}

std::unique_ptr<attune::Case> RowSoftmax::make_case(const Problem& problem, const attune::Device&,
                                                    std::uint64_t seed) {
  Tensor x(attune::DType::kF32, {problem.rows, problem.cols});
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  for (float& value : x.values<float>()) value = normal(generator);
  return std::make_unique<RowSoftmaxCase>(problem, std::move(x));
}

std::unique_ptr<attune::Case> RowSoftmax::bind_case(const TensorMap& tensors,
                                                    const attune::Attributes&,
                                                    const attune::Device& device) {
  const auto found = tensors.find("x");
  if (found == tensors.end() || found->second.shape().rank() != 2) {
    throw attune::InvalidArgument("row_softmax: x: expected a tensor of rank 2");
  }
  const attune::ConstTensorView x = found->second.view();
  return std::make_unique<RowSoftmaxCase>(RowSoftmaxProblem{x.size(0), x.size(1)},
                                          attune::to_host(x, device));
}

RowSoftmaxProblem RowSoftmax::reduced(const Problem& problem) {
  return {std::min<std::int64_t>(problem.rows, 3), problem.cols};
}

double RowSoftmax::bytes(const Problem& problem) {
  return 8.0 * static_cast<double>(problem.rows * problem.cols);
}
double RowSoftmax::flops(const Problem& problem) {
  return 5.0 * static_cast<double>(problem.rows * problem.cols);
}

}  // namespace row_softmax
