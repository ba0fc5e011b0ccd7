// The backward oracle against central differences of the formula, in double.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/case.hpp>

#include "support/recurrent_tensors.hpp"
#include "support/reference_kernels.hpp"

namespace attune::test {
namespace {

using ops::ConstantDecay;
using ops::RecurrentAttentionBackward;
using ops::RecurrentAttentionProblem;
using testing::Each;

void run_backward(const RecurrentTensors& tensors) {
  run_reference<RecurrentAttentionBackward>(tensors.problem, tensors.backward);
}

std::vector<double> output(const std::optional<TensorView>& view) { return to_doubles(*view); }

class ReferenceBackward : public testing::TestWithParam<std::uint64_t> {
 protected:
  void expect_gradient(const char* name, const std::optional<TensorView>& actual,
                       std::vector<double> DoubleRecurrence::*input) const {
    if (!actual) return;
    // The differences are good to 1e-9, rounding to f32 costs 6e-8 at most, to bf16 4e-3.
    const double tolerance = actual->dtype == DType::kF32 ? 1e-6 : 5e-3;
    const std::vector<double> expected = finite_differences(exact_, input);
    EXPECT_LE(relative_rms_error(to_doubles(*actual), expected), tolerance) << name;
  }
  DoubleRecurrence exact_;
};

TEST_P(ReferenceBackward, AgreesWithFiniteDifferences) {
  const RecurrentAttentionProblem problem = random_problem(GetParam());
  SCOPED_TRACE(problem_text<RecurrentAttentionBackward>(problem));
  RecurrentTensors tensors(problem, GetParam());
  if (!problem.d_o && !problem.ht) return;
  run_backward(tensors);

  exact_ = tensors.as_doubles();
  const auto& out = tensors.backward;
  expect_gradient("dq", out.dq, &DoubleRecurrence::q);
  expect_gradient("dk", out.dk, &DoubleRecurrence::k);
  expect_gradient("dv", out.dv, &DoubleRecurrence::v);
  expect_gradient("dg", out.dg, &DoubleRecurrence::g);
  expect_gradient("dgk", out.dgk, &DoubleRecurrence::gk);
  expect_gradient("dgv", out.dgv, &DoubleRecurrence::gv);
  expect_gradient("dgamma", out.dgamma, &DoubleRecurrence::gamma);
  expect_gradient("dinitial_state", out.dinitial_state, &DoubleRecurrence::initial_state);
}
INSTANTIATE_TEST_SUITE_P(RandomProblems, ReferenceBackward, testing::Range<std::uint64_t>(0, 60));

TEST(ReferenceBackwardPass, AMissingGradientCountsAsZero) {
  const RecurrentAttentionProblem problem{
      .T = 7, .H = 2, .Hkv = 1, .K = 3, .V = 2, .gates = ops::kGateG, .h0 = true, .ht = true};
  for (const bool of_o : {true, false}) {
    RecurrentTensors missing(problem, 1), zero(problem, 1);
    if (of_o) {
      missing.backward.d_o.reset();
      zero.backward.d_o = zero.add(DType::kF32, {1, 7, 2, 2}, 0.0);
    } else {
      missing.backward.dfinal_state.reset();
      zero.backward.dfinal_state = zero.add(DType::kF32, {1, 2, 3, 2}, 0.0);
    }
    run_backward(missing);
    run_backward(zero);
    EXPECT_EQ(to_doubles(missing.backward.dq), to_doubles(zero.backward.dq));
    EXPECT_EQ(to_doubles(missing.backward.dk), to_doubles(zero.backward.dk));
    EXPECT_EQ(output(missing.backward.dg), output(zero.backward.dg));
    EXPECT_EQ(output(missing.backward.dinitial_state), output(zero.backward.dinitial_state));
  }
}

TEST(ReferenceBackwardPass, AnInfiniteGateHasNoGradientAndLetsNoneThrough) {
  RecurrentTensors tensors(
      {.T = 6, .H = 1, .Hkv = 1, .K = 2, .V = 2, .gates = ops::kGateGk, .h0 = true, .ht = true}, 2);
  std::vector<float> gk(12, -0.5F);
  for (const std::size_t at : {0U, 1U, 6U, 7U}) {  // tokens 0 and 3, both channels
    gk[at] = -std::numeric_limits<float>::infinity();
  }
  tensors.backward.gk = ConstTensorView(gk.data(), {1, 6, 1, 2});
  run_backward(tensors);
  const std::vector<double> dgk = output(tensors.backward.dgk);
  for (std::size_t i = 0; i < dgk.size(); ++i) {
    EXPECT_EQ(dgk[i] == 0.0, std::isinf(gk[i])) << "at " << i;
    EXPECT_TRUE(std::isfinite(dgk[i])) << "at " << i;
  }
  EXPECT_THAT(output(tensors.backward.dinitial_state), Each(0.0));
}

TEST(ReferenceBackwardPass, AnInfiniteGateHasNoGradientEvenOverAnInfiniteState) {
  RecurrentTensors tensors(
      {.T = 1, .H = 1, .Hkv = 1, .K = 1, .V = 2, .gates = ops::kGateG, .h0 = true}, 3);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> state{kInfinity, 1.0F}, g{-kInfinity};
  tensors.backward.initial_state = ConstTensorView(state.data(), {1, 1, 1, 2});
  tensors.backward.g = ConstTensorView(g.data(), {1, 1, 1});
  run_backward(tensors);
  EXPECT_THAT(output(tensors.backward.dg), Each(0.0));
}

TEST(ReferenceBackwardPass, SharedGammaSumsOverSequences) {
  const RecurrentAttentionProblem problem{
      .B = 3, .T = 4, .H = 2, .Hkv = 2, .K = 2, .V = 2, .gates = ops::kGateGamma};
  const std::vector<float> gamma{-0.25F, -0.5F};
  const auto dgamma_with_stride = [&](std::int64_t stride, ConstantDecay::Source source) {
    RecurrentTensors tensors(problem, 4);
    tensors.backward.gamma = {
        .source = source,
        .values = ConstTensorView(gamma.data(), DType::kF32, Extents{3, 2}, Extents{0, 1})};
    const TensorView memory = tensors.add(DType::kF32, {3, 2}, 99.0);
    tensors.backward.dgamma =
        TensorView(memory.data, DType::kF32, Extents{3, 2}, Extents{stride, 1});
    run_backward(tensors);
    return output(tensors.backward.dgamma);
  };
  const auto apart = dgamma_with_stride(2, ConstantDecay::Source::kValues);
  const auto shared = dgamma_with_stride(0, ConstantDecay::Source::kValues);
  for (std::size_t h = 0; h < 2; ++h) {
    const double sum = apart[h] + apart[2 + h] + apart[4 + h];
    EXPECT_NEAR(shared[h], sum, 1e-6 * std::abs(sum) + 1e-6);
  }
}

TEST(ReferenceBackwardPass, SlopesHaveTheOppositeGradient) {
  const RecurrentAttentionProblem problem{
      .T = 4, .H = 2, .Hkv = 2, .K = 2, .V = 2, .gates = ops::kGateGamma};
  const auto gradient = [&](ConstantDecay::Source source, const std::vector<float>& values) {
    RecurrentTensors tensors(problem, 5);
    tensors.backward.gamma = {.source = source, .values = ConstTensorView(values.data(), {1, 2})};
    run_backward(tensors);
    return output(tensors.backward.dgamma);
  };
  const auto of_values = gradient(ConstantDecay::Source::kValues, {-0.25F, -0.5F});
  const auto of_slopes = gradient(ConstantDecay::Source::kSlopes, {0.25F, 0.5F});
  for (std::size_t h = 0; h < 2; ++h) {
    EXPECT_NE(of_values[h], 0.0);
    EXPECT_EQ(of_slopes[h], -of_values[h]);
  }
}

TEST(ReferenceBackwardPass, AnEmptyBatchHasAZeroSharedGammaGradient) {
  const RecurrentAttentionProblem problem{
      .B = 0, .T = 4, .H = 2, .Hkv = 2, .K = 3, .V = 3, .gates = ops::kGateGamma};
  ops::RecurrentAttentionBackwardArgs args;
  args.q = args.k = args.v = ConstTensorView(nullptr, DType::kF32, {0, 4, 2, 3});
  args.dq = args.dk = args.dv = TensorView(nullptr, DType::kF32, {0, 4, 2, 3});
  const std::vector<float> gamma{-1.0F, -2.0F};
  std::vector<float> dgamma{99.0F, 99.0F};
  args.gamma = {.source = ConstantDecay::Source::kValues,
                .values = ConstTensorView(gamma.data(), DType::kF32, Extents{0, 2}, Extents{0, 1})};
  args.dgamma = TensorView(dgamma.data(), DType::kF32, Extents{0, 2}, Extents{0, 1});
  run_reference<RecurrentAttentionBackward>(problem, args);
  EXPECT_THAT(dgamma, Each(0.0F));
}

TEST(ReferenceBackwardPass, WithoutTokensTheStatesGradientPassesThrough) {
  const RecurrentTensors tensors({.T = 0, .Hkv = 1, .K = 2, .V = 3, .h0 = true, .ht = true}, 6);
  run_backward(tensors);
  EXPECT_EQ(output(tensors.backward.dinitial_state), to_doubles(*tensors.backward.dfinal_state));
}

TEST(ReferenceBackwardPass, NaNStaysInItsKvHead) {
  const RecurrentTensors tensors({.T = 4, .H = 4, .Hkv = 2, .K = 3, .V = 3}, 7);
  auto* const q = const_cast<float*>(static_cast<const float*>(tensors.backward.q.data));
  q[0] = std::numeric_limits<float>::quiet_NaN();  // token 0, head 0
  run_backward(tensors);
  const auto all_finite = [](const ConstTensorView& view) {
    for (const double x : to_doubles(view)) {
      if (!std::isfinite(x)) return false;
    }
    return true;
  };
  EXPECT_FALSE(all_finite(tensors.backward.dk.slice(2, 0, 1)));
  EXPECT_TRUE(all_finite(tensors.backward.dk.slice(2, 1, 2)));
  EXPECT_TRUE(all_finite(tensors.backward.dv.slice(2, 1, 2)));
  EXPECT_TRUE(all_finite(tensors.backward.dq.slice(2, 1, 4)));
}

}  // namespace
}  // namespace attune::test
