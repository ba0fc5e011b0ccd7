// The forward oracle against the formula written a second time.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/recurrent_tensors.hpp"
#include "support/reference_kernels.hpp"
#include "support/rounding.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttention;
using ops::RecurrentAttentionProblem;
using testing::Each;
using testing::ElementsAreArray;
using testing::IsEmpty;

void expect_rounded_once(const ConstTensorView& actual, const std::vector<double>& exact) {
  const std::vector<double> values = to_doubles(actual);
  ASSERT_EQ(values.size(), exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_NEAR(values[i], exact[i], half_ulp(actual.dtype, exact[i])) << "at " << i;
  }
}

void run_forward(const RecurrentTensors& tensors) {
  run_reference<RecurrentAttention>(tensors.problem, tensors.forward);
}

class ReferenceForward : public testing::TestWithParam<std::uint64_t> {};

TEST_P(ReferenceForward, IsTheFormulaRoundedOnce) {
  const RecurrentAttentionProblem problem = random_problem(GetParam());
  SCOPED_TRACE(problem_text<RecurrentAttention>(problem));
  const RecurrentTensors tensors(problem, GetParam());
  run_forward(tensors);
  const DoubleOutputs expected = run(tensors.as_doubles());
  expect_rounded_once(tensors.forward.o, expected.o);
  expect_rounded_once(*tensors.forward.final_state, expected.final_state);
}
INSTANTIATE_TEST_SUITE_P(RandomProblems, ReferenceForward, testing::Range<std::uint64_t>(0, 100));

TEST(ReferenceForwardPass, HandlesMoreTokensThanItHoldsAtATime) {
  const RecurrentTensors tensors({.T = 150,
                                  .H = 2,
                                  .Hkv = 1,
                                  .K = 3,
                                  .V = 10,
                                  .gates = ops::kGateGk | ops::kGateGv,
                                  .h0 = true},
                                 7);
  run_forward(tensors);
  const DoubleOutputs expected = run(tensors.as_doubles());
  expect_rounded_once(tensors.forward.o, expected.o);
  expect_rounded_once(*tensors.forward.final_state, expected.final_state);
}

TEST(ReferenceForwardPass, UpdatesAStateInPlace) {
  const RecurrentAttentionProblem problem{
      .B = 2, .T = 5, .H = 3, .Hkv = 3, .K = 4, .V = 2, .h0 = true};
  RecurrentTensors apart(problem, 1);
  run_forward(apart);
  const std::vector<double> expected = to_doubles(*apart.forward.final_state);

  RecurrentTensors in_place(problem, 1);
  const ConstTensorView& state = *in_place.forward.initial_state;
  in_place.forward.final_state =
      TensorView(const_cast<void*>(state.data), state.dtype, state.shape, state.strides);
  run_forward(in_place);
  EXPECT_THAT(to_doubles(state), ElementsAreArray(expected));
}

TEST(ReferenceForwardPass, EmptySequencesPassTheirStateThrough) {
  RecurrentTensors tensors({.T = 3, .H = 2, .Hkv = 2, .K = 2, .V = 3, .N = 3, .h0 = true}, 2);
  const std::vector<std::int32_t> bounds{0, 0, 3, 3};
  tensors.forward.cu_seqlens = ConstTensorView(bounds.data(), {4});
  run_forward(tensors);
  for (const std::int64_t empty : {0, 2}) {
    EXPECT_EQ(to_doubles(tensors.forward.final_state->slice(0, empty, empty + 1)),
              to_doubles(tensors.forward.initial_state->slice(0, empty, empty + 1)));
  }
}

TEST(ReferenceForwardPass, WithoutTokensTheStateIsTheInitialOneOrZero) {
  const RecurrentTensors given({.T = 0, .Hkv = 1, .K = 2, .V = 2, .h0 = true}, 3);
  run_forward(given);
  EXPECT_EQ(to_doubles(*given.forward.final_state), to_doubles(*given.forward.initial_state));
  const RecurrentTensors none({.T = 0, .Hkv = 1, .K = 2, .V = 2}, 3);
  run_forward(none);
  EXPECT_THAT(to_doubles(*none.forward.final_state), Each(0.0));
}

TEST(ReferenceForwardPass, TakesAnEmptyBatchOfNullPointers) {
  const RecurrentAttentionProblem problem{.B = 0, .T = 4, .H = 2, .Hkv = 2, .K = 3, .V = 3};
  ops::RecurrentAttentionArgs args;
  args.q = args.k = args.v = ConstTensorView(nullptr, DType::kF32, {0, 4, 2, 3});
  args.o = TensorView(nullptr, DType::kF32, {0, 4, 2, 3});
  args.final_state = TensorView(nullptr, DType::kF32, {0, 2, 3, 3});
  EXPECT_NO_THROW(run_reference<RecurrentAttention>(problem, args));
}

TEST(ReferenceForwardPass, AnInfiniteGateForgetsExactly) {
  RecurrentTensors tensors(
      {.T = 6, .H = 1, .Hkv = 1, .K = 3, .V = 4, .gates = ops::kGateG, .h0 = true}, 4);
  constexpr std::int64_t kResetAt = 4;
  std::vector<float> g(6, -0.5F);
  g[kResetAt] = -std::numeric_limits<float>::infinity();
  tensors.forward.g = ConstTensorView(g.data(), {1, 6, 1});
  run_forward(tensors);

  DoubleRecurrence tail = tensors.as_doubles();
  tail.T = 6 - kResetAt;
  tail.initial_state.clear();
  for (auto* rows : {&tail.q, &tail.k}) rows->erase(rows->begin(), rows->begin() + kResetAt * 3);
  tail.v.erase(tail.v.begin(), tail.v.begin() + kResetAt * 4);
  tail.g = {0, -0.5};
  expect_rounded_once(*tensors.forward.final_state, run(tail).final_state);
}

TEST(ReferenceForwardPass, GatesAreAddedBeforeTheirExponential) {
  RecurrentTensors tensors(
      {.T = 2, .H = 1, .Hkv = 1, .K = 1, .V = 1, .gates = ops::kGateGk | ops::kGateGv, .h0 = true},
      5);
  const std::vector<float> large{1000.0F, 1000.0F}, small{-1000.5F, -1000.5F};
  tensors.forward.gk = ConstTensorView(large.data(), {1, 2, 1, 1});
  tensors.forward.gv = ConstTensorView(small.data(), {1, 2, 1, 1});
  run_forward(tensors);
  expect_rounded_once(tensors.forward.o, run(tensors.as_doubles()).o);
}

TEST(ReferenceForwardPass, NaNStaysInItsHead) {
  const RecurrentAttentionProblem problem{.B = 2, .T = 4, .H = 2, .Hkv = 2, .K = 3, .V = 3};
  const RecurrentTensors tensors(problem, 6);
  auto* const k = const_cast<float*>(static_cast<const float*>(tensors.forward.k.data));
  k[0] = std::numeric_limits<float>::quiet_NaN();  // sequence 0, token 0, head 0
  run_forward(tensors);
  const std::vector<double> states = to_doubles(*tensors.forward.final_state);
  const std::vector<double> other_heads(states.begin() + 3 * 3, states.end());
  EXPECT_TRUE(std::isnan(states[0]));
  for (const double s : other_heads) EXPECT_TRUE(std::isfinite(s));
}

TEST(ReferenceForwardPass, GammaHasThreeSpellings) {
  const RecurrentAttentionProblem problem{
      .T = 5, .H = 4, .Hkv = 4, .K = 2, .V = 2, .gates = ops::kGateGamma};
  const auto final_state_with = [&](const ops::ConstantDecay& gamma) {
    RecurrentTensors tensors(problem, 8);
    tensors.forward.gamma = gamma;
    run_forward(tensors);
    return to_doubles(*tensors.forward.final_state);
  };
  using Source = ops::ConstantDecay::Source;
  const std::vector<float> values{0.0F, -1.5F, -3.0F, -4.5F}, slopes{0.0F, 1.5F, 3.0F, 4.5F};
  const auto by_layer =  // -(8 / 4) (1 - 1 / 4) h
      final_state_with({.source = Source::kLayer, .values = {}, .layer_idx = 1, .num_layers = 4});
  EXPECT_EQ(by_layer, final_state_with({.source = Source::kValues,
                                        .values = ConstTensorView(values.data(), {1, 4})}));
  EXPECT_EQ(by_layer, final_state_with({.source = Source::kSlopes,
                                        .values = ConstTensorView(slopes.data(), {1, 4})}));
}

TEST(ReferenceKernels, AreTheOnlyCandidateOfTheirPlatform) {
  const ErasedKernel& kernel = reference_kernel<RecurrentAttention>();
  const RecurrentAttentionProblem problem = random_problem(0);
  const auto ref = ProblemRef::of<RecurrentAttention>(problem);
  const auto candidates = kernel.erased_candidates(ref, cpu_device().info());
  ASSERT_EQ(candidates.size(), 1U);
  EXPECT_EQ(config_text(kernel, candidates[0]), "default");
  EXPECT_THAT(kernel.axes(), IsEmpty());
  EXPECT_THROW(kernel.parse({{"threads", "2"}}), InvalidArgument);
}

TEST(ReferenceKernels, RefuseADeviceWhoseMemoryTheHostCannotRead) {
  const RecurrentAttentionProblem problem = random_problem(0);
  const auto ref = ProblemRef::of<RecurrentAttention>(problem);
  const ErasedKernel& kernel = reference_kernel<RecurrentAttention>();
  EXPECT_TRUE(kernel.erased_supports(ref, cpu_device().info()));
  DeviceInfo gpu;
  gpu.id.backend = "gpu";
  EXPECT_EQ(kernel.erased_supports(ref, gpu).code(), refused::kDevice);
}

}  // namespace
}  // namespace attune::test
