// The gradients of strong gates, sums of terms that cancel, against what recurrent_attention.hpp
// says is kept of them.
#include "support/gate_gradients.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include <attune/core/params.hpp>

#include "support/host_kernels.hpp"

namespace attune::test {
namespace {

class GateGradients : public HostKernel {};
INSTANTIATE_TEST_SUITE_P(EveryHostKernel, GateGradients,
                         testing::ValuesIn(host_kernels("recurrent_attention.backward")),
                         host_kernel_name);

TEST_P(GateGradients, KeepTheHeadersBoundHoweverStrongTheGate) {
  EXPECT_GT(expect_gate_gradients_within_bounds(GetParam(), GetParam().info()), 0);
}

/// The same tensors with `factor` times what is allowed added to all values.
TensorMap shifted(const ConstantGates& made, double factor) {
  TensorMap result;
  const std::vector<GradientError> of_expected = made.errors(made.expected());
  for (const auto& [name, tensor] : made.expected()) {
    const auto error = std::ranges::find(of_expected, name, &GradientError::name);
    Tensor copy(DType::kF32, tensor.shape());
    const std::vector<double> values = to_doubles(tensor.view());
    for (std::size_t i = 0; i < values.size(); ++i) {
      copy.values<float>()[i] = static_cast<float>(values[i] + factor * error->allowed);
    }
    result.emplace(name, std::move(copy));
  }
  return result;
}

TEST(GateGradientBound, IsNoLooserThanItSays) {
  const KernelOnDevice on = host_kernels("recurrent_attention.backward").front();
  const AnyProblem problem =
      on.op->parse(parse_params("B=1 T=20 H=2 K=8 V=8 gate=g+gamma+gk+gv h0=yes ht=yes", ' '));
  const ConstantGates made(on, problem, -2.0F);
  for (const GradientError& error : made.errors(shifted(made, 0.9))) {
    EXPECT_LE(error.rms, error.allowed) << error;
  }
  for (const GradientError& error : made.errors(shifted(made, 1.1))) {
    EXPECT_GT(error.rms, error.allowed) << error;
  }
}

/// What is allowed of `name` in a problem of one token, channel and head: there all is known.
double allowed_of(const std::string& name, const std::string& given) {
  const KernelOnDevice on = host_kernels("recurrent_attention.backward").front();
  const std::string text = str("B=1 T=1 H=1 K=1 V=1 gate=g+gamma+gk+gv ", given);
  const ConstantGates made(on, on.op->parse(parse_params(text, ' ')), -40.0F);
  const std::vector<GradientError> errors = made.errors(made.expected());
  return std::ranges::find(errors, name, &GradientError::name)->allowed;
}

// There is no state before the token: its gates have no gradient, and q dq is o do.
TEST(GateGradientBound, IsOfWhatIsReadOfTheState) {
  const double read = allowed_of("dgv", "");
  EXPECT_GT(read, 0);
  for (const std::string gate : {"dg", "dg_gamma", "dgk", "dgv"}) {
    SCOPED_TRACE(gate);
    EXPECT_NEAR(allowed_of(gate, ""), read, 1e-6 * read);
    EXPECT_GT(allowed_of(gate, "ht=yes do=no"), 0);
    EXPECT_GT(allowed_of(gate, "ht=yes"), read);
  }
}

}  // namespace
}  // namespace attune::test
