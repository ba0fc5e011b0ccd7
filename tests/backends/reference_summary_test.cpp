// The oracle's summaries and folds against what they are for: the state of one walk, and the
// gradient of the state that it starts from.
#include <cmath>

#include <gtest/gtest.h>

#include <attune/ops/state_fold_op.hpp>
#include <attune/ops/state_summary_op.hpp>

#include "support/recurrent_tensors.hpp"
#include "support/reference_kernels.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttentionProblem;
using ops::StateSummary;

/// A summary, its tensors in doubles and in memory.
struct Summary {
  std::vector<double> state, gk_sum, gv_sum;
};

/// Runs the oracle on the inputs of a walk. With `against_time`, on those of its backward pass.
Summary summary_of(RecurrentTensors& tensors, bool against_time) {
  const RecurrentAttentionProblem& p = tensors.problem;
  ops::StateSummaryProblem problem{.B = p.B,
                                   .T = p.T,
                                   .H = p.H,
                                   .Hkv = against_time ? p.H : p.Hkv,
                                   .K = p.K,
                                   .V = p.V,
                                   .N = p.N,
                                   .dtype = p.dtype,
                                   .gates = p.gates,
                                   .gate_dtype = p.gate_dtype};
  problem.reverse = p.reverse != against_time;
  problem.inclusive = against_time;
  const auto& in = tensors.backward;
  ops::StateSummaryArgs args;
  args.k = against_time ? in.q : in.k;
  args.v = against_time ? *in.d_o : in.v;
  args.g = in.g;
  args.gamma = in.gamma;
  args.gk = in.gk;
  args.gv = in.gv;
  args.cu_seqlens = in.cu_seqlens;
  if (against_time) args.scale = in.scale;
  const std::int64_t sequences = p.sequences();
  args.final_state = tensors.add(DType::kF32, {sequences, p.H, p.K, p.V}, std::nan(""));
  args.gk_sum = tensors.add(DType::kF32, {sequences, p.H, p.K}, std::nan(""));
  if (in.gv) args.gv_sum = tensors.add(DType::kF32, {sequences, p.H, p.V}, std::nan(""));
  run_reference<StateSummary>(problem, args);
  return {to_doubles(args.final_state), to_doubles(args.gk_sum),
          args.gv_sum ? to_doubles(*args.gv_sum) : std::vector<double>()};
}

/// exp(gk_sum + gv_sum) start + added, [N, H, K, V].
std::vector<double> applied(const Summary& summary, const std::vector<double>& start,
                            const RecurrentAttentionProblem& p) {
  std::vector<double> states = summary.state;
  const auto K = static_cast<std::size_t>(p.K), V = static_cast<std::size_t>(p.V);
  for (std::size_t at = 0; at < states.size() && !start.empty(); ++at) {
    const std::size_t head = at / (K * V);
    const double keys = summary.gk_sum[at / V];
    const double values = summary.gv_sum.empty() ? 0 : summary.gv_sum[head * V + at % V];
    states[at] += std::exp(keys + values) * start[at];
  }
  return states;
}

class ReferenceSummary : public testing::TestWithParam<std::uint64_t> {};

TEST_P(ReferenceSummary, TakesAnyStateThroughItsTokens) {
  RecurrentTensors tensors(random_problem(GetParam()), GetParam());
  const DoubleRecurrence exact = tensors.as_doubles();
  const std::vector<double> expected = run(exact).final_state;
  const std::vector<double> got =
      applied(summary_of(tensors, false), exact.initial_state, tensors.problem);
  EXPECT_LE(relative_rms_error(got, expected), 1e-6);
}

TEST_P(ReferenceSummary, AgainstTimeTakesTheGradientOfAnyStateThroughThem) {
  RecurrentTensors tensors(random_problem(GetParam()), GetParam());
  if (!tensors.backward.d_o) return;
  const DoubleRecurrence exact = tensors.as_doubles();
  const std::vector<double> expected = gradients(exact).initial_state;
  const std::vector<double> got =
      applied(summary_of(tensors, true), exact.dfinal_state, tensors.problem);
  EXPECT_LE(relative_rms_error(got, expected), 1e-6);
}
INSTANTIATE_TEST_SUITE_P(RandomProblems, ReferenceSummary, testing::Range<std::uint64_t>(0, 80));

TEST(ReferenceFold, AppliesSummariesInTheOrderThatIsGiven) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Tensor added = Tensor::of<float>({1.0F, 10.0F, 100.0F}, {3, 1, 1, 1});
  const Tensor logs = Tensor::of<float>({std::log(2.0F), std::log(3.0F), -kInfinity}, {3, 1, 1});
  const Tensor initial = Tensor::of<float>({5.0F, NAN, 7.0F}, {3, 1, 1, 1});
  const Tensor slots = Tensor::of<std::int32_t>({0, -1, 2}, {3});
  const Tensor offsets = Tensor::of<std::int64_t>({0, 2, 4, 6}, {4});
  const Tensor order = Tensor::of<std::int32_t>({0, 1, 1, 0, 2, 0}, {6});
  Tensor folded(DType::kF32, {3, 1, 1, 1});
  ops::StateFoldArgs args;
  args.final_state = added;
  args.gk_sum = logs;
  args.initial_state = initial;
  args.initial_slots = slots;
  args.fold_offsets = offsets;
  args.fold_order = order;
  args.folded = folded;
  run_reference<ops::StateFold>({.F = 3, .M = 3, .L = 6, .H = 1, .K = 1, .V = 1, .h0 = true}, args);
  const auto got = folded.values<float>();
  EXPECT_NEAR(got[0], 3 * (2 * 5 + 1) + 10, 1e-4);
  EXPECT_NEAR(got[1], 2 * 10 + 1, 1e-4) << "from zero, the other way round";
  EXPECT_NEAR(got[2], 2 * 100 + 1, 1e-3) << "-inf resets";
}

}  // namespace
}  // namespace attune::test
