// The simd kernels of recurrent_attention.backward on what the op's own cases do not reach.
// tests/backends/conformance_test.cpp holds its results against the oracle.
#include <limits>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/backward_runs.hpp"
#include "support/reference_kernels.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttentionBackward;
using ops::RecurrentAttentionProblem;
using testing::Each;

std::string kernel_name(const testing::TestParamInfo<std::string_view>& test) {
  return test.param == kChunkBackward ? "Chunk" : "Recurrent";
}

class RandomSimdBackward
    : public testing::TestWithParam<std::tuple<std::string_view, std::uint64_t>> {};

// Transposed and padded states, empty sequences, decays of each sequence.
TEST_P(RandomSimdBackward, AgreesWithTheReference) {
  const auto& [kernel, seed] = GetParam();
  const RecurrentAttentionProblem problem = random_problem(seed);
  if (problem.d_o || problem.ht) expect_like_reference(kernel, problem, seed);
}
INSTANTIATE_TEST_SUITE_P(RandomProblems, RandomSimdBackward,
                         testing::Combine(testing::Values(kRecurrentBackward, kChunkBackward),
                                          testing::Range<std::uint64_t>(0, 100)));

class SimdBackward : public testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Kernels, SimdBackward, testing::Values(kRecurrentBackward, kChunkBackward),
                         kernel_name);

// Many segments, in the last of which there are fewer tokens than in a pass.
TEST_P(SimdBackward, LosesNothingOverLongSequences) {
  const RecurrentAttentionProblem plain{
      .T = 2003, .H = 2, .Hkv = 1, .K = 20, .V = 33, .h0 = true, .ht = true};
  for (const std::int32_t gates : {0, int{ops::kGateG}, int{ops::kGateGk}, int{ops::kGateGv},
                                   ops::kGateG | ops::kGateGamma | ops::kGateGk | ops::kGateGv}) {
    RecurrentAttentionProblem problem = plain;
    problem.gates = gates;
    problem.reverse = gates == ops::kGateGk;
    expect_like_reference(GetParam(), problem, 7);
  }
}

TEST_P(SimdBackward, AnInfiniteGateHasNoGradientAndLetsNoneThrough) {
  const RecurrentAttentionProblem problem{.T = 11,
                                          .H = 1,
                                          .Hkv = 1,
                                          .K = 5,
                                          .V = 3,
                                          .gates = ops::kGateG | ops::kGateGk | ops::kGateGv,
                                          .h0 = true,
                                          .ht = true};
  const auto made = [&] {
    RecurrentTensors tensors(problem, 3);
    const float reset = -std::numeric_limits<float>::infinity();
    static_cast<float*>(const_cast<void*>(tensors.backward.g->data))[0] = reset;
    static_cast<float*>(const_cast<void*>(tensors.backward.gk->data))[9 * 5 + 2] = reset;
    static_cast<float*>(const_cast<void*>(tensors.backward.gv->data))[8 * 3 + 1] = reset;
    return tensors;
  };
  const RecurrentTensors simd = made(), reference = made();
  run_simd_backward(GetParam(), simd);
  run_reference<RecurrentAttentionBackward>(reference.problem, reference.backward);
  expect_like_reference(simd, reference);
  EXPECT_EQ(to_doubles(*simd.backward.dg)[0], 0.0);
  EXPECT_EQ(to_doubles(*simd.backward.dgk)[9 * 5 + 2], 0.0);
  EXPECT_EQ(to_doubles(*simd.backward.dgv)[8 * 3 + 1], 0.0);
  EXPECT_THAT(to_doubles(*simd.backward.dinitial_state), Each(0.0));
}

TEST_P(SimdBackward, AnEmptyBatchHasAZeroSharedGammaGradient) {
  RecurrentTensors tensors({.B = 0, .T = 4, .H = 3, .Hkv = 3, .K = 2, .V = 2}, 1);
  std::vector<float> slopes(3, 0.5F), dgamma(3, 7.0F);
  tensors.problem.gates = ops::kGateGamma;
  tensors.backward.gamma = {
      .source = ops::ConstantDecay::Source::kSlopes,
      .values = ConstTensorView(slopes.data(), DType::kF32, Extents{0, 3}, Extents{0, 1})};
  tensors.backward.dgamma = TensorView(dgamma.data(), DType::kF32, Extents{0, 3}, Extents{0, 1});
  run_simd_backward(GetParam(), tensors);
  EXPECT_THAT(dgamma, Each(0.0F));
}

TEST_P(SimdBackward, AResetHeadHasNoGradientOfItsValueChannels) {
  const RecurrentAttentionProblem problem{
      .T = 7, .H = 1, .Hkv = 1, .K = 5, .V = 3, .gates = ops::kGateG | ops::kGateGv, .h0 = true};
  const RecurrentTensors tensors(problem, 3);
  static_cast<float*>(const_cast<void*>(tensors.backward.g->data))[4] =
      -std::numeric_limits<float>::infinity();
  run_simd_backward(GetParam(), tensors);
  const std::vector<double> dgv = to_doubles(*tensors.backward.dgv);
  for (std::size_t j = 0; j < 3; ++j) EXPECT_EQ(dgv[4 * 3 + j], 0.0);
  EXPECT_NE(dgv[3 * 3], 0.0);
}

// Checkpoints grow as the square root of T, other memory by rows.
TEST_P(SimdBackward, NeedsMemoryForFewStates) {
  const auto bytes = [](std::int64_t tokens) {
    const RecurrentAttentionProblem problem{
        .T = tokens, .H = 1, .Hkv = 1, .K = 128, .V = 128, .gates = ops::kGateG};
    const ErasedKernel& kernel = simd_backward_kernel(GetParam());
    const ConfigBlob config = kernel.parse({{"threads", "1"}, {"isa", "baseline"}});
    return kernel.erased_workspace_bytes(ProblemRef::of<RecurrentAttentionBackward>(problem),
                                         config);
  };
  constexpr std::size_t kState = 128 * 128 * sizeof(float);
  constexpr std::size_t kRow = 128 * sizeof(float);
  EXPECT_LE(bytes(4096), (64 + 4) * kState + 4096 * kRow);
  EXPECT_LE(bytes(65536), (256 + 4) * kState + 65536 * kRow);
}

}  // namespace
}  // namespace attune::test
