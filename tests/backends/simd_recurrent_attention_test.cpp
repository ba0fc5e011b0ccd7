// What simd.recurrent_attention answers a tuner, and what the op's own cases do not reach.
// tests/backends/conformance_test.cpp holds its results against the oracle.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/backends/cpu.hpp>
#include <attune/core/executor.hpp>
#include <attune/ops/register.hpp>

#include "support/compiled_isas.hpp"
#include "support/recurrent_tensors.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttention;
using ops::RecurrentAttentionProblem;
using testing::HasSubstr;

const ErasedKernel& kernel() {
  static const Registry registry = [] {
    Registry made;
    ops::register_ops(made);
    cpu::register_simd_kernels(made);
    return made;
  }();
  return *registry.find_kernel("simd.recurrent_attention")->kernel;
}

/// With the heuristic's config, but for what `given` replaces.
void run_simd(const RecurrentAttentionProblem& problem, const ops::RecurrentAttentionArgs& args,
              const Params& given = {}) {
  const ProblemRef ref = ProblemRef::of<RecurrentAttention>(problem);
  Params params = kernel().params(kernel().erased_heuristic(ref, cpu_device().info()));
  for (Param& param : params) {
    if (const std::string* value = find_param(given, param.name)) param.value = *value;
  }
  const ConfigBlob config = kernel().parse(params);
  Executor::run_choice(ref, &args, {.kernel = &kernel(), .config = config}, cpu_device(), nullptr);
}

DeviceInfo cpu_with(std::vector<std::string> features, int cores) {
  DeviceInfo info = cpu_device().info();
  info.features = std::move(features);
  info.cores = cores;
  return info;
}
const std::vector<std::string> kAvx2{"avx2", "fma", "f16c"};
const std::vector<std::string> kAvx512{"avx2",     "fma",      "f16c",    "avx512f",
                                       "avx512bw", "avx512dq", "avx512vl"};

std::vector<Params> candidates(const RecurrentAttentionProblem& problem, const DeviceInfo& on) {
  std::vector<Params> all;
  const ProblemRef ref = ProblemRef::of<RecurrentAttention>(problem);
  for (const ConfigBlob& config : kernel().erased_candidates(ref, on)) {
    all.push_back(kernel().params(config));
  }
  return all;
}

std::set<std::string> values_of(const std::vector<Params>& configs, std::string_view axis) {
  std::set<std::string> values;
  for (const Params& params : configs) values.insert(*find_param(params, axis));
  return values;
}

constexpr RecurrentAttentionProblem kLarge{
    .B = 2, .T = 2048, .H = 16, .Hkv = 16, .K = 128, .V = 128};

TEST(SimdRecurrentAttention, NeedsHostMemory) {
  DeviceInfo gpu;
  gpu.id = {"gpu", 0};
  const ProblemRef problem = ProblemRef::of<RecurrentAttention>(kLarge);
  EXPECT_EQ(kernel().erased_supports(problem, gpu).code(), refused::kDevice);
  EXPECT_TRUE(kernel().erased_supports(problem, cpu_device().info()));
}

TEST(SimdRecurrentAttention, NamesTheInstructionsThatACpuHasNot) {
  if (!build_has("avx512")) GTEST_SKIP() << "this build leaves out avx512";
  const ProblemRef problem = ProblemRef::of<RecurrentAttention>(kLarge);
  const auto reason = [&](const char* isa, std::vector<std::string> features) {
    const ConfigBlob config = kernel().parse({{"isa", isa}});
    return kernel().erased_fits(problem, cpu_with(std::move(features), 2), config).reason();
  };
  EXPECT_EQ(reason("baseline", {}), "");
  EXPECT_EQ(reason("avx2", kAvx2), "");
  EXPECT_EQ(reason("avx512", kAvx512), "");
  EXPECT_THAT(reason("avx2", {"avx2", "fma"}), HasSubstr("f16c"));
  EXPECT_THAT(reason("avx512", kAvx2), HasSubstr("avx512f"));
}

TEST(SimdRecurrentAttention, TakesTheInstructionSetsOfTheBuildAndNoOther) {
  const ProblemRef problem = ProblemRef::of<RecurrentAttention>(kLarge);
  for (const char* const isa : {"baseline", "avx2", "avx512"}) {
    const ConfigBlob config = kernel().parse({{"isa", isa}});
    const Support support = kernel().erased_fits(problem, cpu_with(kAvx512, 2), config);
    EXPECT_EQ(static_cast<bool>(support), build_has(isa)) << isa << ": " << support.reason();
  }
}

TEST(SimdRecurrentAttention, TriesTheWidestInstructionSetAndTheNext) {
  if (!build_has("avx512")) GTEST_SKIP() << "this build leaves out avx512";
  EXPECT_EQ(values_of(candidates(kLarge, cpu_with({}, 2)), "isa"),
            std::set<std::string>{"baseline"});
  EXPECT_EQ(values_of(candidates(kLarge, cpu_with(kAvx2, 2)), "isa"),
            std::set<std::string>{"avx2"});
  EXPECT_EQ(values_of(candidates(kLarge, cpu_with(kAvx512, 2)), "isa"),
            (std::set<std::string>{"avx2", "avx512"}));
}

TEST(SimdRecurrentAttention, TriesNoMoreThreadsThanCoresOrTasks) {
  EXPECT_EQ(values_of(candidates(kLarge, cpu_with(kAvx512, 1)), "threads"),
            std::set<std::string>{"1"});
  EXPECT_EQ(values_of(candidates(kLarge, cpu_with(kAvx512, 6)), "threads"),
            (std::set<std::string>{"4", "8"}));
  RecurrentAttentionProblem one_head = kLarge;
  one_head.B = one_head.H = one_head.Hkv = 1;
  one_head.V = 32;
  EXPECT_EQ(values_of(candidates(one_head, cpu_with(kAvx512, 64)), "threads"),
            std::set<std::string>{"1"});
}

TEST(SimdRecurrentAttention, TriesNoMoreTokensAPassThanThereAre) {
  const auto tokens_per_pass = [](std::int64_t tokens) {
    RecurrentAttentionProblem problem = kLarge;
    problem.T = tokens;
    return values_of(candidates(problem, cpu_with(kAvx512, 2)), "tokens_per_pass");
  };
  EXPECT_EQ(tokens_per_pass(1), std::set<std::string>{"1"});
  EXPECT_EQ(tokens_per_pass(3), (std::set<std::string>{"1", "2"}));
  EXPECT_EQ(tokens_per_pass(100), (std::set<std::string>{"2", "4"}));
}

TEST(SimdRecurrentAttention, TriesAFewDozenConfigsOnAnyCpu) {
  for (const int cores : {1, 2, 6, 64, 256}) {
    for (const auto& features : {std::vector<std::string>{}, kAvx2, kAvx512}) {
      const std::size_t count = candidates(kLarge, cpu_with(features, cores)).size();
      EXPECT_GE(count, 10U);
      EXPECT_LE(count, 60U);
    }
  }
}

TEST(SimdRecurrentAttention, TilesTheStateWhereThereAreFewerHeadsThanCores) {
  const auto heuristic = [](std::int64_t heads, int cores, std::string_view axis) {
    RecurrentAttentionProblem problem = kLarge;
    problem.B = 1;
    problem.H = problem.Hkv = heads;
    const ConfigBlob config = kernel().erased_heuristic(ProblemRef::of<RecurrentAttention>(problem),
                                                        cpu_with(kAvx512, cores));
    return *find_param(kernel().params(config), axis);
  };
  EXPECT_EQ(heuristic(16, 8, "tile_v"), "128");
  EXPECT_EQ(heuristic(16, 8, "threads"), "8");
  EXPECT_EQ(heuristic(2, 8, "tile_v"), "32");
  EXPECT_EQ(heuristic(2, 8, "threads"), "8");
}

TEST(SimdRecurrentAttention, TakesHeadsTogetherWhereEachThreadHasFourTasks) {
  const auto heads = [](std::int64_t tokens, int cores, ops::Layout layout, int batch = 1) {
    RecurrentAttentionProblem problem = kLarge;
    problem.B = batch;
    problem.T = tokens;
    problem.layout = layout;
    DeviceInfo host = cpu_with(kAvx512, cores);
    host.l2_bytes = 2 << 20;
    const ConfigBlob config =
        kernel().erased_heuristic(ProblemRef::of<RecurrentAttention>(problem), host);
    return *find_param(kernel().params(config), "heads");
  };
  EXPECT_EQ(heads(2048, 1, ops::Layout::kBthd), "8");
  EXPECT_EQ(heads(2048, 2, ops::Layout::kBthd), "2");
  EXPECT_EQ(heads(2048, 4, ops::Layout::kBthd), "1");
  EXPECT_EQ(heads(2048, 4, ops::Layout::kBthd, 8), "8");
  EXPECT_EQ(heads(2048, 16, ops::Layout::kBthd), "1");
  EXPECT_EQ(heads(16, 1, ops::Layout::kBthd), "1");
  EXPECT_EQ(heads(2048, 1, ops::Layout::kBhtd), "1");  // rows of a head lie side by side
}

TEST(SimdRecurrentAttention, StaysOnOneThreadForAFewTokens) {
  RecurrentAttentionProblem small = kLarge;
  small.B = small.T = 1;
  small.K = small.V = 16;
  const ConfigBlob config =
      kernel().erased_heuristic(ProblemRef::of<RecurrentAttention>(small), cpu_with(kAvx512, 8));
  EXPECT_EQ(*find_param(kernel().params(config), "threads"), "1");
}

class SimdRandomTensors : public testing::TestWithParam<std::uint64_t> {};

// Decays and bounds of each sequence, transposed and padded states: more than the op's cases have.
TEST_P(SimdRandomTensors, IsTheFormula) {
  const RecurrentAttentionProblem problem = random_problem(GetParam());
  SCOPED_TRACE(problem_text<RecurrentAttention>(problem));
  const RecurrentTensors tensors(problem, GetParam());
  const DoubleOutputs expected = run(tensors.as_doubles());
  const double tolerance = problem.dtype == DType::kF32 ? 2e-5 : 5e-3;
  for (const char* const heads : {"1", "2", "8"}) {
    run_simd(problem, tensors.forward, {{"heads", heads}, {"prefetch", "yes"}});
    EXPECT_LE(relative_rms_error(to_doubles(tensors.forward.o), expected.o), tolerance) << heads;
    EXPECT_LE(relative_rms_error(to_doubles(*tensors.forward.final_state), expected.final_state),
              2e-5)
        << heads;
  }
}
INSTANTIATE_TEST_SUITE_P(RandomProblems, SimdRandomTensors, testing::Range<std::uint64_t>(0, 100));

TEST(SimdRecurrentAttention, SharesItsTasksAmongThreads) {
  const RecurrentAttentionProblem problem{
      .B = 3, .T = 9, .H = 4, .Hkv = 2, .K = 20, .V = 70, .gates = ops::kGateGk | ops::kGateGamma};
  const RecurrentTensors tensors(problem, 5);
  const std::vector<double> expected = run(tensors.as_doubles()).o;
  std::vector<double> of_one_thread;
  for (const char* const threads : {"1", "2", "8", "64"}) {
    assign(tensors.forward.o, std::vector<double>(expected.size(), 0.0));
    run_simd(problem, tensors.forward, {{"threads", threads}, {"tile_v", "32"}});
    const std::vector<double> o = to_doubles(tensors.forward.o);
    EXPECT_LE(relative_rms_error(o, expected), 2e-5);
    if (of_one_thread.empty()) of_one_thread = o;
    EXPECT_EQ(o, of_one_thread) << threads;
  }
}

TEST(SimdRecurrentAttention, GivesTheSameBitsHoweverItMovesItsData) {
  for (const std::int64_t tokens : {1, 3, 29}) {
    const RecurrentAttentionProblem problem{.T = tokens,
                                            .H = 6,
                                            .Hkv = 2,
                                            .K = 24,
                                            .V = 80,
                                            .gates = ops::kGateGk | ops::kGateGv,
                                            .h0 = true,
                                            .ht = true};
    const RecurrentTensors tensors(problem, 6);
    const auto outputs = [&](const Params& config) {
      run_simd(problem, tensors.forward, config);
      std::vector<double> values = to_doubles(tensors.forward.o);
      for (const double x : to_doubles(*tensors.forward.final_state)) values.push_back(x);
      return values;
    };
    const std::vector<double> plain =
        outputs({{"passes", "1"}, {"heads", "1"}, {"prefetch", "no"}, {"stream", "no"}});
    EXPECT_EQ(outputs({{"passes", "2"}, {"heads", "1"}, {"prefetch", "yes"}}), plain);
    EXPECT_EQ(outputs({{"passes", "4"}, {"prefetch", "yes"}, {"stream", "yes"}}), plain);
    for (const char* const heads : {"2", "4", "8"}) {
      EXPECT_EQ(outputs({{"heads", heads}, {"prefetch", "yes"}}), plain) << heads;
    }
    EXPECT_EQ(outputs({{"prefetch_state", "512"}, {"stream", "yes"}}), plain);
    EXPECT_EQ(outputs({{"tile_v", "32"}, {"stream", "yes"}, {"threads", "2"}}), plain);
  }
}

/// Gates of long sequences, per token or per key channel: each value for so many tokens in turn.
std::vector<double> gates_in_turn(const std::vector<double>& gates, std::int64_t tokens,
                                  std::int64_t of_each) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < tokens * of_each; ++i) {
    // Neighbouring channels are at different places of the list.
    const std::int64_t place = i / of_each / 7 + i % of_each;
    values.push_back(gates[static_cast<std::size_t>(place % std::ssize(gates))]);
  }
  return values;
}

// A state may be owed the decays of many tokens (recurrent_deferred.inl.hpp).
TEST(SimdRecurrentAttention, IsTheFormulaWhateverTheDecaysAddUpTo) {
  constexpr double kReset = -std::numeric_limits<double>::infinity();
  const std::vector<double> kinds[] = {
      {-1e-5},                            // owed until the last token
      {-0.3},                             // more than may be owed, at some token
      {-0.01, -5.0, -0.2, 0.0},           // in a few channels
      {0.4, -0.4, 0.1, -0.1, -3.0, 3.0},  // states that grow
      {-0.1, kReset, -0.1, -200.0, 0.0},  // resets
  };
  for (const std::vector<double>& gates : kinds) {
    for (const int per : {int{ops::kGateG}, int{ops::kGateGk}, ops::kGateGk | ops::kGateGv}) {
      for (const bool states : {false, true}) {
        const RecurrentAttentionProblem problem{
            .T = 131, .H = 2, .Hkv = 1, .K = 20, .V = 40, .gates = per, .h0 = states, .ht = states};
        SCOPED_TRACE(problem_text<RecurrentAttention>(problem));
        RecurrentTensors tensors(problem, 7);
        const TensorView gate = tensors.add(
            DType::kF32, per == ops::kGateG ? Extents{1, 131, 2} : Extents{1, 131, 2, 20}, 0.0);
        assign(gate, gates_in_turn(gates, 131, element_count(gate.shape) / 131));
        (per == ops::kGateG ? tensors.forward.g : tensors.forward.gk) = gate;
        const DoubleOutputs expected = run(tensors.as_doubles());
        for (const char* const tokens : {"1", "2", "4"}) {
          run_simd(problem, tensors.forward, {{"tokens_per_pass", tokens}});
          EXPECT_LE(relative_rms_error(to_doubles(tensors.forward.o), expected.o), 2e-6);
          if (!states) continue;
          EXPECT_LE(
              relative_rms_error(to_doubles(*tensors.forward.final_state), expected.final_state),
              2e-6);
        }
      }
    }
  }
}

TEST(SimdRecurrentAttention, KeepsANotANumberInItsHead) {
  const RecurrentAttentionProblem problem{
      .T = 40, .H = 2, .Hkv = 2, .K = 20, .V = 24, .gates = ops::kGateGk};
  RecurrentTensors tensors(problem, 8);
  const TensorView gate = tensors.add(DType::kF32, {1, 40, 2, 20}, -0.1);
  std::vector<double> values = to_doubles(gate);
  values[(9 * 2 + 1) * 20 + 3] = std::numeric_limits<double>::quiet_NaN();  // token 9 of head 1
  assign(gate, values);
  tensors.forward.gk = gate;
  run_simd(problem, tensors.forward);
  const std::vector<double> o = to_doubles(tensors.forward.o);
  for (std::size_t i = 0; i < o.size(); ++i) {
    const std::size_t token = i / 48;
    const std::size_t head = i / 24 % 2;
    EXPECT_EQ(std::isnan(o[i]), head == 1 && token >= 9) << token << " " << head;
  }
}

TEST(SimdRecurrentAttention, StreamsStatesThatNoCacheOfItsThreadsHolds) {
  DeviceInfo host = cpu_with(kAvx512, 16);
  host.l2_bytes = 2 << 20;
  const auto streams = [&](RecurrentAttentionProblem problem) {
    const ConfigBlob config =
        kernel().erased_heuristic(ProblemRef::of<RecurrentAttention>(problem), host);
    return *find_param(kernel().params(config), "stream");
  };
  RecurrentAttentionProblem step = kLarge;
  step.T = 1;
  step.h0 = step.ht = true;
  step.B = 128;
  EXPECT_EQ(streams(step), "yes");  // 16 MiB read and written by each thread
  step.B = 8;
  EXPECT_EQ(streams(step), "no");  // 1 MiB
  step.B = 128;
  step.ht = false;
  EXPECT_EQ(streams(step), "no");  // nothing is written
}

TEST(SimdRecurrentAttention, KeepsSequencesWithinTheTokensWhateverTheirBoundsSay) {
  const RecurrentAttentionProblem problem{
      .T = 6, .H = 2, .Hkv = 1, .K = 5, .V = 7, .N = 4, .h0 = true};
  RecurrentTensors tensors(problem, 3);
  const auto outputs = [&](const std::vector<std::int64_t>& bounds) {
    tensors.forward.cu_seqlens = ConstTensorView(bounds.data(), {5});
    run_simd(problem, tensors.forward);
    std::vector<double> values = to_doubles(tensors.forward.o);
    for (const double x : to_doubles(*tensors.forward.final_state)) values.push_back(x);
    return values;
  };
  EXPECT_EQ(outputs({-5, 2, 4, 3, 99}), outputs({0, 2, 4, 4, 6}));
}

/// A buffer of the view's type around which nothing may be written.
template <class T>
class Surrounded {
 public:
  /// [1, tokens, heads, width] with three elements after each row and before the first.
  Surrounded(std::int64_t tokens, std::int64_t heads, std::int64_t width)
      : memory_(static_cast<std::size_t>(3 + tokens * heads * (width + 3)), T(kSentinel)),
        view_(memory_.data() + 3, kDTypeOf<T>, {1, tokens, heads, width},
              {tokens * heads * (width + 3), heads * (width + 3), width + 3, 1}) {}

  TensorView view() const { return view_; }

  std::int64_t sentinels() const { return std::ranges::count(memory_, T(kSentinel)); }
  std::int64_t sentinels_expected() const {
    return static_cast<std::int64_t>(memory_.size()) - element_count(view_.shape);
  }

 private:
  static constexpr float kSentinel = 12345.0F;
  std::vector<T> memory_;
  TensorView view_;
};

template <class T>
class SimdOutputs : public testing::Test {};
using ElementTypes = testing::Types<float, f16, bf16>;
TYPED_TEST_SUITE(SimdOutputs, ElementTypes);

TYPED_TEST(SimdOutputs, AreAllThatIsWritten) {
  for (const std::int64_t width : {1, 16, 20, 70}) {
    const RecurrentAttentionProblem problem{
        .T = 7, .H = 3, .Hkv = 3, .K = 9, .V = width, .dtype = kDTypeOf<TypeParam>, .ht = true};
    RecurrentTensors tensors(problem, 4);
    const Surrounded<TypeParam> o(7, 3, width);
    const Surrounded<float> state(3, 9, width);  // [1, H, K, V]
    tensors.forward.o = o.view();
    tensors.forward.final_state = state.view();
    run_simd(problem, tensors.forward);
    EXPECT_EQ(o.sentinels(), o.sentinels_expected());
    EXPECT_EQ(state.sentinels(), state.sentinels_expected());
  }
}

}  // namespace
}  // namespace attune::test
