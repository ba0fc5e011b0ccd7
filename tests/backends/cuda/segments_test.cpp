// Long sequences that kernels cut into segments: whatever their number, results are those of one walk.
// Conformance runs the numbers that a tuner tries on small problems.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/case.hpp>
#include <attune/ops/recurrent_attention.hpp>

#include "backends/cuda/gpu.hpp"
#include "cuda/fused_recurrent/fused_recurrent_config.hpp"
#include "ops/shapes.hpp"
#include "support/kernel_runs.hpp"
#include "support/random_tensor.hpp"

namespace attune::test {
namespace {

namespace fused_recurrent = cuda::fused_recurrent;
using ops::RecurrentAttentionOptions;

constexpr double kTolerance = 2e-5;
constexpr double kGateTolerance = 1e-4;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kKeys = 24;
constexpr std::int64_t kValues = 40;
constexpr std::int64_t kTokensOfSegment = 64;

TEST(CudaSegments, AConfigStoredWithoutTheAxisIsOneSegment) {
  const Params stored = parse_params("rows_per_lane=16,row_warps=2,column_warps=2,tokens=8", ',');
  const auto config = from_params<fused_recurrent::FusedRecurrentConfig>(stored);
  EXPECT_EQ(config.segments, 1);
  const Params backward =
      parse_params("rows_per_lane=16,row_warps=2,column_warps=2,tokens=8,interval=64", ',');
  EXPECT_EQ(from_params<fused_recurrent::FusedRecurrentBackwardConfig>(backward).segments, 1);
}

TEST(CudaSegments, AreMultiplesAndNeverAsLongAsAllTokens) {
  EXPECT_EQ(cuda::segment_tokens(1000, 0, 1, 8), 0);
  EXPECT_EQ(cuda::segment_tokens(1000, 0, 4, 8), 256);
  EXPECT_EQ(cuda::segment_tokens(1000, 5, 4, 8), 56);
  EXPECT_EQ(cuda::segment_tokens(64, 0, 2, 64), 0);
  EXPECT_EQ(cuda::segment_tokens(65, 0, 512, 64), 64);
  EXPECT_EQ(cuda::segment_tokens(0, 0, 4, 8), 0);
}

/// All inputs of a call with every gate.
struct Inputs {
  explicit Inputs(std::int64_t tokens, std::uint64_t seed = 1)
      : random(seed),
        q(random({1, tokens, kHeads, kKeys})),
        k(random({1, tokens, kHeads, kKeys})),
        v(random({1, tokens, kHeads, kValues})),
        d_o(random({1, tokens, kHeads, kValues})),
        initial_state(random({1, kHeads, kKeys, kValues})),
        dfinal_state(random({1, kHeads, kKeys, kValues})),
        g(random.log_decays({1, tokens, kHeads})),
        gk(random.log_decays({1, tokens, kHeads, kKeys})),
        gv(random.log_decays({1, tokens, kHeads, kValues})),
        gamma(Tensor::of(std::vector<float>{-1e-4F, -0.02F}, {kHeads})) {}

  Inputs on(const Device& gpu) const {
    Inputs copy(1);
    const auto move = [&gpu](const Tensor& from, Tensor& to) { to = upload(from, gpu); };
    move(q, copy.q), move(k, copy.k), move(v, copy.v), move(d_o, copy.d_o);
    move(initial_state, copy.initial_state), move(dfinal_state, copy.dfinal_state);
    move(g, copy.g), move(gk, copy.gk), move(gv, copy.gv), move(gamma, copy.gamma);
    return copy;
  }

  RecurrentAttentionOptions options(bool reverse, const ops::CallOptions& call) const {
    RecurrentAttentionOptions options{.g = g.view(), .g_gamma = gamma.view()};
    options.gk = gk.view();
    options.gv = gv.view();
    options.initial_state = initial_state;
    options.reverse = reverse;
    options.call = call;
    return options;
  }

  RandomTensors random;
  Tensor q, k, v, d_o, initial_state, dfinal_state, g, gk, gv, gamma;
};

struct NamedResult {
  std::string name;
  Tensor tensor;
  double tolerance;
};

/// Every output of the forward and of the backward pass. `kernel`: "kernel=..." of the forward
/// pass, and what follows it.
std::vector<NamedResult> results_of(const Inputs& in, bool reverse, const char* platform,
                                    const std::string& forward, const std::string& backward) {
  const ops::CallOptions call{
      .platform = platform, .config = forward, .context = &heuristic_context()};
  RecurrentAttentionOptions options = in.options(reverse, call);
  options.want_final_state = true;
  auto found = ops::recurrent_attention(in.q, in.k, in.v, options);
  std::vector<NamedResult> results;
  const auto add = [&](const char* name, Tensor& tensor, double tolerance) {
    results.push_back({name, std::move(tensor), tolerance});
  };
  add("o", found.o, kTolerance);
  add("final_state", *found.final_state, kTolerance);
  options = in.options(reverse, call);
  options.call.config = backward;
  auto gradients = ops::recurrent_attention_backward(
      in.q, in.k, in.v, {.d_o = in.d_o, .dfinal_state = in.dfinal_state}, options);
  add("dq", gradients.dq, kTolerance);
  add("dk", gradients.dk, kTolerance);
  add("dv", gradients.dv, kTolerance);
  add("dinitial_state", *gradients.dinitial_state, kTolerance);
  add("dg", *gradients.dg, kGateTolerance);
  add("dg_gamma", *gradients.dg_gamma, kGateTolerance);
  add("dgk", *gradients.dgk, kGateTolerance);
  add("dgv", *gradients.dgv, kGateTolerance);
  return results;
}

class CudaSegmentsOn : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (gpu_ == nullptr) GTEST_SKIP() << kNeedsGpu;
  }

  /// In the parameter's direction. Checkpoints are 16 tokens apart: f32 with gamma takes no more.
  std::vector<NamedResult> on_the_gpu(const Inputs& in, std::int64_t segments) const {
    const std::string axes = str(",segments=", segments);
    auto results =
        results_of(in.on(*gpu_), GetParam(), "cuda", "kernel=cuda.fused_recurrent" + axes,
                   "kernel=cuda.fused_recurrent.backward,interval=16" + axes);
    for (NamedResult& result : results) result.tensor = to_host(result.tensor, *gpu_);
    return results;
  }
  std::vector<NamedResult> on_the_oracle(const Inputs& in) const {
    return results_of(in, GetParam(), "reference", "", "");
  }

  static void expect_near(const std::vector<NamedResult>& actual,
                          const std::vector<NamedResult>& expected) {
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const double error = relative_rms_error(to_doubles(actual[i].tensor.view()),
                                              to_doubles(expected[i].tensor.view()));
      EXPECT_LE(error, actual[i].tolerance) << actual[i].name;
    }
  }

  const Device* const gpu_ = find_gpu();
};

/// Decays of 0 at the tokens around every boundary that a segment may have, in either direction.
TEST_P(CudaSegmentsOn, ResetsAroundBoundariesAreExact) {
  constexpr std::int64_t kTokens = 5 * kTokensOfSegment + 7;
  for (const std::int64_t offset : {-1, 0, 1}) {
    SCOPED_TRACE(offset);
    Inputs in(kTokens);
    for (std::int64_t boundary = 0; boundary <= kTokens; boundary += kTokensOfSegment) {
      for (const std::int64_t token : {boundary + offset, kTokens - boundary + offset}) {
        if (token < 0 || token >= kTokens) continue;
        const std::int64_t head = boundary / kTokensOfSegment % kHeads;
        in.g.values<float>()[static_cast<std::size_t>(token * kHeads + head)] = kMinusInfinity;
        const std::int64_t other = token * kHeads + 1 - head;
        in.gk.values<float>()[static_cast<std::size_t>(other * kKeys + 3)] = kMinusInfinity;
        in.gv.values<float>()[static_cast<std::size_t>(other * kValues + 5)] = kMinusInfinity;
      }
    }
    const auto expected = on_the_oracle(in);
    expect_near(on_the_gpu(in, 1), expected);
    expect_near(on_the_gpu(in, 4), expected);
    expect_near(on_the_gpu(in, 512), expected);
  }
}

TEST_P(CudaSegmentsOn, AnyLengthMayBeCut) {
  for (const std::int64_t tokens : {1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 1000}) {
    SCOPED_TRACE(tokens);
    const Inputs in(tokens, static_cast<std::uint64_t>(tokens));
    const auto expected = on_the_oracle(in);
    for (const std::int64_t segments : {2, 8, 512}) {
      SCOPED_TRACE(segments);
      expect_near(on_the_gpu(in, segments), expected);
    }
  }
}

/// From a head that forgets nothing in all these tokens to channels that forget each.
TEST_P(CudaSegmentsOn, GradientsHoldOver65536Tokens) {
  Inputs in(65536);
  for (Tensor* const gate : {&in.g, &in.gk, &in.gv}) {
    const auto values = gate->values<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] *= std::pow(10.0F, -static_cast<float>(i % 7));
    }
  }
  const auto expected = on_the_gpu(in, 1);
  expect_near(on_the_gpu(in, 16), expected);
  expect_near(on_the_gpu(in, 512), expected);
}

TEST_P(CudaSegmentsOn, ANanStaysInItsHead) {
  constexpr std::int64_t kTokens = 500;
  Inputs in(kTokens);
  const auto clean = on_the_gpu(in, 4);
  in.k.values<float>()[200 * kHeads * kKeys + kKeys] = std::numeric_limits<float>::quiet_NaN();
  const auto sick = on_the_gpu(in, 4);
  for (std::size_t i = 0; i < clean.size(); ++i) {
    SCOPED_TRACE(clean[i].name);
    const bool is_state = clean[i].name.ends_with("state");
    const int head_dim = clean[i].name == "dg_gamma" ? 0 : is_state ? 1 : 2;
    const auto head = [&](const std::vector<NamedResult>& results, std::int64_t h) {
      return to_doubles(copy_of(results[i].tensor.view().slice(head_dim, h, h + 1)));
    };
    EXPECT_EQ(head(clean, 0), head(sick, 0));
  }
  const auto outputs = to_doubles(copy_of(sick[0].tensor.view().slice(2, 1, 2)));
  EXPECT_TRUE(std::ranges::any_of(outputs, [](double x) { return std::isnan(x); }));
}

INSTANTIATE_TEST_SUITE_P(Directions, CudaSegmentsOn, testing::Bool(), [](const auto& direction) {
  return direction.param ? "reversed" : "forward";
});

OpShapes shapes_of(std::string_view op) {
  OpShapes shapes{.op = op, .factors = {}, .ranges = {}, .problems = {}};
  shapes.factors = {{"B=1", "B=3", "N=1", "N=4", "N=33"},
                    {"h0=no ht=no", "h0=yes ht=no", "h0=no ht=yes", "h0=yes ht=yes"},
                    {"reverse=no", "reverse=yes"},
                    {"H=1", "H=4 Hkv=2", "H=3"},
                    {"dtype=f32", "dtype=f16", "dtype=bf16"},
                    {"gate=none", "gate=g", "gate=gamma", "gate=gk", "gate=gv", "gate=g+gk",
                     "gate=gk+gv", "gate=g+gamma+gk+gv", "gate=gv gate_dtype=io"}};
  shapes.ranges = {{"T", 1, 3000}, {"K", 1, 70}, {"V", 1, 70}};
  return shapes;
}

/// Packed sequences of unequal lengths, and batches, in any number of segments: of 30 problems, those
/// that the kernel takes.
void expect_agreement_with_the_oracle(std::string_view op_name, std::string_view kernel) {
  const Device* const gpu = find_gpu();
  if (gpu == nullptr) GTEST_SKIP() << kNeedsGpu;
  const Registry& registry = heuristic_context().registry();
  const OpInfo& op = registry.op(op_name);
  KernelOnDevice on{&op, nullptr, gpu};
  for (const RegisteredKernel* const entry : registry.kernels(op_name, "cuda", "gpu")) {
    if (entry->kernel->name() == kernel) on.kernel = entry->kernel.get();
  }
  ASSERT_NE(on.kernel, nullptr);
  const std::vector<AxisInfo> axes = on.kernel->axes();
  const auto axis = std::ranges::find(axes, "segments", &AxisInfo::name);
  ASSERT_NE(axis, axes.end());
  constexpr std::uint64_t kProblems = 30;
  int taken = 0;
  for (std::uint64_t seed = 0; seed < kProblems; ++seed) {
    const std::string text = random_problem_of(shapes_of(op_name), seed);
    const AnyProblem problem = op.parse(parse_params(text, ' '));
    if (!on.kernel->erased_supports(problem, gpu->info())) continue;
    ++taken;
    const TensorMap expected = oracle_outputs(registry, on, problem, seed);
    const std::unique_ptr<Case> inputs = op.make_case(problem, *gpu, seed);
    for (const ConfigBlob& config : configs_along(on, problem, *axis)) {
      SCOPED_TRACE(str(text, ", seed ", seed, ", ", config_text(*on.kernel, config)));
      const TensorMap first = run_on(*inputs, on, config, std::byte{0xff});
      for (const OutputCheck& check : inputs->compare(expected)) {
        EXPECT_TRUE(check.passed) << check.name << ": error " << check.error << ", tolerance "
                                  << check.tolerance << " " << check.reason;
      }
      const TensorMap second = run_on(*inputs, on, config, std::byte{0x4b});
      EXPECT_EQ(first_difference(first, second), "");
    }
  }
  EXPECT_GE(taken, 5);
}

TEST(CudaSegments, OfRandomProblemsAgreeWithTheOracle) {
  expect_agreement_with_the_oracle(ops::RecurrentAttention::kName, "cuda.fused_recurrent");
}
TEST(CudaSegments, OfChunksOfRandomProblemsAgreeWithTheOracle) {
  for (const std::string_view kernel : {"cuda.gla_wgmma", "cuda.gla_mma", "cuda.chunk_mma"}) {
    SCOPED_TRACE(kernel);
    expect_agreement_with_the_oracle(ops::RecurrentAttention::kName, kernel);
  }
}
TEST(CudaSegments, OfRandomProblemsHaveTheOraclesGradients) {
  expect_agreement_with_the_oracle(ops::RecurrentAttentionBackward::kName,
                                   "cuda.fused_recurrent.backward");
}

}  // namespace
}  // namespace attune::test
