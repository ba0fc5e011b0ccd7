// What simd.chunk answers a tuner, and what the op's own cases do not reach.
// tests/backends/conformance_test.cpp holds its results against the oracle.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

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

constexpr double kTolerance = 2e-5;
constexpr double kTolerance16 = 5e-3;

const ErasedKernel& kernel() {
  static const Registry registry = [] {
    Registry made;
    ops::register_ops(made);
    cpu::register_simd_kernels(made);
    return made;
  }();
  return *registry.find_kernel("simd.chunk")->kernel;
}

/// With the heuristic's config, but for what `given` replaces.
void run_chunk(const RecurrentAttentionProblem& problem, const ops::RecurrentAttentionArgs& args,
               const Params& given = {}) {
  const ProblemRef ref = ProblemRef::of<RecurrentAttention>(problem);
  Params params = kernel().params(kernel().erased_heuristic(ref, cpu_device().info()));
  for (Param& param : params) {
    if (const std::string* value = find_param(given, param.name)) param.value = *value;
  }
  const ConfigBlob config = kernel().parse(params);
  Executor::run_choice(ref, &args, {.kernel = &kernel(), .config = config}, cpu_device(), nullptr);
}

/// o, then the final state.
std::vector<double> outputs(RecurrentTensors& tensors, const Params& given = {}) {
  const double poison = std::numeric_limits<double>::quiet_NaN();
  const auto count = static_cast<std::size_t>(element_count(tensors.forward.o.shape));
  assign(tensors.forward.o, std::vector<double>(count, poison));
  run_chunk(tensors.problem, tensors.forward, given);
  std::vector<double> values = to_doubles(tensors.forward.o);
  for (const double x : to_doubles(*tensors.forward.final_state)) values.push_back(x);
  return values;
}

void expect_the_formula(RecurrentTensors& tensors, const Params& given = {},
                        double tolerance = kTolerance) {
  const DoubleOutputs expected = run(tensors.as_doubles());
  run_chunk(tensors.problem, tensors.forward, given);
  const double of_o = tensors.problem.dtype == DType::kF32 ? tolerance : kTolerance16;
  EXPECT_LE(relative_rms_error(to_doubles(tensors.forward.o), expected.o), of_o);
  EXPECT_LE(relative_rms_error(to_doubles(*tensors.forward.final_state), expected.final_state),
            tolerance);
}

class SimdChunkRandomTensors : public testing::TestWithParam<std::uint64_t> {};

// Decays and bounds of each sequence, transposed and padded states: more than the op's cases have.
TEST_P(SimdChunkRandomTensors, AreTheFormula) {
  RecurrentAttentionProblem problem = random_problem(GetParam());
  problem.T *= 7;
  SCOPED_TRACE(problem_text<RecurrentAttention>(problem));
  RecurrentTensors tensors(problem, GetParam());
  for (const char* const chunk : {"8", "16", "32"}) {
    SCOPED_TRACE(chunk);
    expect_the_formula(tensors, {{"chunk", chunk}});
  }
}
INSTANTIATE_TEST_SUITE_P(RandomProblems, SimdChunkRandomTensors,
                         testing::Range<std::uint64_t>(0, 100));

TEST(SimdChunk, AgreesAcrossEveryEdgeOfAChunk) {
  for (const std::int64_t tokens : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65}) {
    for (const char* const chunk : {"8", "16", "32"}) {
      SCOPED_TRACE(str("T=", tokens, " chunk=", chunk));
      RecurrentTensors tensors({.T = tokens,
                                .H = 2,
                                .Hkv = 1,
                                .K = 33,
                                .V = 40,
                                .gates = ops::kGateG | ops::kGateGk | ops::kGateGv,
                                .h0 = true},
                               static_cast<std::uint64_t>(tokens));
      expect_the_formula(tensors, {{"chunk", chunk}});
    }
  }
}

// Products of bf16 pairs round the state, and keys with their decays, to bf16; sums stay fp32.
TEST(SimdChunk, MultipliesPairsOfBf16WhereTheCpuCan) {
  if (!build_has("avx512_bf16")) GTEST_SKIP() << "this build leaves out avx512_bf16";
  if (!cpu_device().info().has("avx512_bf16")) GTEST_SKIP() << "this CPU has no AVX-512 BF16";
  for (const std::int64_t tokens : {1, 16, 31, 32, 65, 200}) {
    for (const std::int64_t channels : {1, 16, 33, 64, 100}) {
      for (const std::int32_t gates :
           {0, +ops::kGateG, +ops::kGateGk, ops::kGateG | ops::kGateGv}) {
        for (const char* const chunk : {"8", "16", "32"}) {
          SCOPED_TRACE(str("T=", tokens, " K=", channels, " gates=", gates, " chunk=", chunk));
          RecurrentTensors tensors({.T = tokens,
                                    .H = 2,
                                    .Hkv = 1,
                                    .K = channels,
                                    .V = 80,
                                    .dtype = DType::kBF16,
                                    .gates = gates,
                                    .h0 = true},
                                   static_cast<std::uint64_t>(tokens));
          expect_the_formula(tensors, {{"chunk", chunk}, {"isa", "avx512_bf16"}}, kTolerance16);
        }
      }
    }
  }
}

TEST(SimdChunk, TakesPairsOfNothingButBf16) {
  if (!build_has("avx512_bf16")) GTEST_SKIP() << "this build leaves out avx512_bf16";
  const ConfigBlob config = kernel().parse({{"isa", "avx512_bf16"}});
  DeviceInfo device = cpu_device().info();
  device.features = {"avx2",     "fma",      "f16c",     "avx512f",
                     "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"};
  RecurrentAttentionProblem problem{.T = 64, .H = 2, .Hkv = 2, .K = 64, .V = 64};
  const auto code = [&] {
    return kernel().erased_fits(ProblemRef::of<RecurrentAttention>(problem), device, config).code();
  };
  EXPECT_EQ(code(), refused::kConfig);
  problem.dtype = DType::kBF16;
  EXPECT_EQ(code(), "");
  device.features.pop_back();
  EXPECT_EQ(code(), refused::kDevice);
}

TEST(SimdChunk, TokensDoNotDependOnThoseThatFollow) {
  constexpr std::int64_t kFirst = 21;
  for (const std::int32_t gates : {0, +ops::kGateG, +ops::kGateGk, ops::kGateG | ops::kGateGv}) {
    SCOPED_TRACE(gates);
    const RecurrentAttentionProblem problem{
        .T = 50, .H = 2, .Hkv = 2, .K = 24, .V = 36, .gates = gates};
    RecurrentTensors tensors(problem, 11);
    run_chunk(problem, tensors.forward, {{"chunk", "16"}});
    const std::vector<double> expected = to_doubles(tensors.forward.o.slice(1, 0, kFirst));

    RecurrentAttentionProblem first = problem;
    first.T = kFirst;
    ops::RecurrentAttentionArgs args = tensors.forward;
    for (ConstTensorView* view : {&args.q, &args.k, &args.v}) *view = view->slice(1, 0, kFirst);
    for (auto* gate : {&args.g, &args.gk, &args.gv}) {
      if (*gate) *gate = (*gate)->slice(1, 0, kFirst);
    }
    args.o = args.o.slice(1, 0, kFirst);
    run_chunk(first, args, {{"chunk", "16"}});
    EXPECT_EQ(to_doubles(args.o), expected);
  }
}

// Three heads on eight threads are three, seven are seven.
TEST(SimdChunk, GivesTheSameBitsWithAnyNumberOfThreads) {
  for (const std::int64_t heads : {3, 7}) {
    for (const std::int32_t gates : {+ops::kGateGamma, +ops::kGateGk, +ops::kGateGv}) {
      RecurrentTensors tensors(
          {.T = 70, .H = heads, .Hkv = 1, .K = 20, .V = 30, .gates = gates, .h0 = true}, 5);
      const std::vector<double> expected = outputs(tensors, {{"threads", "1"}});
      for (const char* const threads : {"2", "4", "8"}) {
        EXPECT_EQ(outputs(tensors, {{"threads", threads}}), expected) << heads << " " << threads;
      }
    }
  }
}

TEST(SimdChunk, GivesTheSameBitsHoweverTheStateIsTiledAndRowsMove) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int32_t gates : {0, +ops::kGateG, ops::kGateGk | ops::kGateGv}) {
      RecurrentTensors tensors({.T = 70,
                                .H = 2,
                                .Hkv = 1,
                                .K = 40,
                                .V = 136,
                                .dtype = dtype,
                                .gates = gates,
                                .h0 = true},
                               6);
      const std::vector<double> expected = outputs(tensors);
      for (const char* const tile_v : {"32", "64", "256"}) {
        EXPECT_EQ(outputs(tensors, {{"tile_v", tile_v}}), expected) << tile_v;
      }
      for (const char* const stream : {"no", "yes"}) {
        EXPECT_EQ(outputs(tensors, {{"stream", stream}, {"prefetch", "no"}}), expected);
        EXPECT_EQ(outputs(tensors, {{"stream", stream}, {"prefetch", "yes"}}), expected);
      }
    }
  }
}

// ---- decays of any size ----

constexpr std::int32_t kEachGate[] = {ops::kGateG, ops::kGateGamma, ops::kGateGk, ops::kGateGv};

/// A problem with one gate, which `decay_of(i)` gives each element of.
template <class DecayOf>
RecurrentTensors with_decays(std::int64_t tokens, std::int32_t gate, DecayOf&& decay_of) {
  RecurrentTensors tensors(
      {.T = tokens, .H = 2, .Hkv = 2, .K = 20, .V = 24, .gates = gate, .h0 = true}, 17);
  const auto fill = [&](const ConstTensorView& view) {
    std::vector<double> values(static_cast<std::size_t>(element_count(view.shape)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = decay_of(i);
    assign(TensorView(const_cast<void*>(view.data), view.dtype, view.shape, view.strides), values);
  };
  if (tensors.forward.g) fill(*tensors.forward.g);
  if (tensors.forward.gk) fill(*tensors.forward.gk);
  if (tensors.forward.gv) fill(*tensors.forward.gv);
  if (gate == ops::kGateGamma) fill(tensors.forward.gamma.values);
  return tensors;
}

TEST(SimdChunk, TakesAnyDecay) {
  const double reset = -std::numeric_limits<double>::infinity();
  for (const std::int32_t gate : kEachGate) {
    for (const double decay : {-30.0, -1e4, reset}) {
      SCOPED_TRACE(str("gate ", gate, ", decay ", decay));
      RecurrentTensors always = with_decays(70, gate, [&](std::size_t) { return decay; });
      expect_the_formula(always);
      RecurrentTensors sometimes = with_decays(
          70, gate, [&](std::size_t i) { return i % 11 == 3 ? decay : -0.01 * double(i % 5); });
      expect_the_formula(sometimes);
    }
  }
}

// The error of a chunk's decay must not add up: exp of the summed logs, what it rounds off carried.
TEST(SimdChunk, KeepsASlowDecayForAThousandTokens) {
  for (const std::int32_t gate : kEachGate) {
    SCOPED_TRACE(gate);
    RecurrentTensors tensors = with_decays(1024, gate, [](std::size_t) { return -1e-4; });
    expect_the_formula(tensors, {}, 2e-6);
  }
}

// ---- what is written ----

/// A buffer around whose rows nothing may be written.
template <class T>
class Surrounded {
 public:
  /// [1, tokens, heads, width], `width` elements apart, rows at multiples of a vector.
  Surrounded(std::int64_t tokens, std::int64_t heads, std::int64_t width, std::int64_t row)
      : memory_(static_cast<std::size_t>(tokens * heads * row + kFront), T(kSentinel)) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    const auto front = static_cast<std::size_t>((64 - address % 64) / sizeof(T));
    view_ = TensorView(memory_.data() + front, kDTypeOf<T>, {1, tokens, heads, width},
                       {tokens * heads * row, heads * row, row, 1});
  }

  TensorView view() const { return view_; }
  std::int64_t sentinels() const { return std::ranges::count(memory_, T(kSentinel)); }
  std::int64_t sentinels_expected() const {
    return static_cast<std::int64_t>(memory_.size()) - element_count(view_.shape);
  }

 private:
  static constexpr float kSentinel = 12345.0F;
  static constexpr std::int64_t kFront = 64;
  std::vector<T> memory_;
  TensorView view_;
};

template <class T>
class SimdChunkOutputs : public testing::Test {};
using ElementTypes = testing::Types<float, f16, bf16>;
TYPED_TEST_SUITE(SimdChunkOutputs, ElementTypes);

TYPED_TEST(SimdChunkOutputs, AreAllThatIsWritten) {
  for (const std::int64_t width : {1, 16, 20, 32, 70}) {
    for (const std::int64_t row : {width + 3, (width + 63) / 32 * 32}) {
      for (const char* const stream : {"no", "yes"}) {
        SCOPED_TRACE(str("V=", width, " row=", row, " stream=", stream));
        const RecurrentAttentionProblem problem{.T = 19,
                                                .H = 3,
                                                .Hkv = 3,
                                                .K = 9,
                                                .V = width,
                                                .dtype = kDTypeOf<TypeParam>,
                                                .ht = true};
        RecurrentTensors tensors(problem, 4);
        const Surrounded<TypeParam> o(19, 3, width, row);
        const Surrounded<float> state(3, 9, width, row);  // [1, H, K, V]
        tensors.forward.o = o.view();
        tensors.forward.final_state = state.view();
        run_chunk(problem, tensors.forward, {{"stream", stream}});
        EXPECT_EQ(o.sentinels(), o.sentinels_expected());
        EXPECT_EQ(state.sentinels(), state.sentinels_expected());
      }
    }
  }
}

// ---- what a tuner is told ----

DeviceInfo cpu_with(std::vector<std::string> features, int cores) {
  DeviceInfo info = cpu_device().info();
  info.features = std::move(features);
  info.cores = cores;
  return info;
}
const std::vector<std::string> kAvx2{"avx2", "fma", "f16c"};
const std::vector<std::string> kAvx512Bf16{"avx2",     "fma",      "f16c",     "avx512f",
                                           "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"};

constexpr RecurrentAttentionProblem kLarge{
    .B = 2, .T = 2048, .H = 16, .Hkv = 16, .K = 128, .V = 128};

TEST(SimdChunk, TriesAFewDozenConfigsOnAnyCpu) {
  RecurrentAttentionProblem large = kLarge;
  large.dtype = DType::kBF16;
  const ProblemRef problem = ProblemRef::of<RecurrentAttention>(large);
  for (const int cores : {1, 2, 6, 64, 256}) {
    for (const auto& features : {std::vector<std::string>{}, kAvx2, kAvx512Bf16}) {
      const std::size_t count =
          kernel().erased_candidates(problem, cpu_with(features, cores)).size();
      EXPECT_GE(count, 8U);
      EXPECT_LE(count, 40U);
    }
  }
}

// Within a chunk exp of either side's logs overflows where that of their sum does not.
TEST(SimdChunk, TakesGatesOfBothSidesThatCancel) {
  for (const std::int32_t key_gate : {+ops::kGateGk, +ops::kGateG}) {
    for (const double log_decay : {8.0, -8.0, 90.0, -90.0}) {
      for (const bool alternating : {false, true}) {
        SCOPED_TRACE(str("gate=", key_gate, " log=", log_decay, " alternating=", alternating));
        RecurrentTensors tensors = gates_that_cancel({.T = 40,
                                                      .H = 2,
                                                      .Hkv = 1,
                                                      .K = 20,
                                                      .V = 40,
                                                      .gates = key_gate | ops::kGateGv,
                                                      .h0 = true,
                                                      .ht = true},
                                                     log_decay, alternating);
        for (const char* const chunk : {"8", "16", "32"}) {
          expect_the_formula(tensors, {{"chunk", chunk}, {"tile_v", "32"}});
        }
      }
    }
  }
}

}  // namespace
}  // namespace attune::test
