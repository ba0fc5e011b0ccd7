// simd.chunk_tiles with its tile registers emulated (emulated_tiles.cpp), so that all but the
// product itself is tested on every machine. Where the CPU has AMX, conformance_test.cpp runs the
// kernel itself.
#include <cmath>
#include <iterator>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/backends/cpu.hpp>
#include <attune/core/executor.hpp>
#include <attune/ops/register.hpp>

#include "support/recurrent_tensors.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttention;
using ops::RecurrentAttentionProblem;

constexpr double kTolerance = 5e-3;  // of bf16

const ErasedKernel& kernel() {
  static const Registry registry = [] {
    Registry made;
    ops::register_ops(made);
    cpu::register_simd_kernels(made);
    return made;
  }();
  return *registry.find_kernel("simd.chunk_tiles")->kernel;
}

void run_tiles(RecurrentTensors& tensors, const Params& given) {
  const ProblemRef problem = ProblemRef::of<RecurrentAttention>(tensors.problem);
  Params params = kernel().params(kernel().erased_heuristic(problem, cpu_device().info()));
  for (Param& param : params) {
    if (const std::string* value = find_param(given, param.name)) param.value = *value;
  }
  Executor::run_choice(problem, &tensors.forward,
                       {.kernel = &kernel(), .config = kernel().parse(params)}, cpu_device(),
                       nullptr);
}

/// o, then the final state.
std::vector<double> outputs(RecurrentTensors& tensors, const Params& given) {
  const double poison = std::numeric_limits<double>::quiet_NaN();
  const auto count = static_cast<std::size_t>(element_count(tensors.forward.o.shape));
  assign(tensors.forward.o, std::vector<double>(count, poison));
  run_tiles(tensors, given);
  std::vector<double> values = to_doubles(tensors.forward.o);
  for (const double x : to_doubles(*tensors.forward.final_state)) values.push_back(x);
  return values;
}

void expect_the_formula(RecurrentTensors& tensors) {
  const DoubleOutputs expected = run(tensors.as_doubles());
  for (const char* const chunk : {"32", "64"}) {
    SCOPED_TRACE(str("chunk=", chunk));
    run_tiles(tensors, {{"chunk", chunk}});
    EXPECT_LE(relative_rms_error(to_doubles(tensors.forward.o), expected.o), kTolerance);
    EXPECT_LE(relative_rms_error(to_doubles(*tensors.forward.final_state), expected.final_state),
              kTolerance);
  }
}

class SimdChunkTilesRandomTensors : public testing::TestWithParam<std::uint64_t> {};

// Every layout, direction and combination of gates; packed sequences, empty ones among them.
TEST_P(SimdChunkTilesRandomTensors, AreTheFormula) {
  RecurrentAttentionProblem problem = random_problem(GetParam());
  problem.T *= 9;
  problem.dtype = DType::kBF16;
  problem.K += 16;  // at most 5 otherwise
  problem.V += 16;
  SCOPED_TRACE(problem_text<RecurrentAttention>(problem));
  RecurrentTensors tensors(problem, GetParam());
  expect_the_formula(tensors);
}
INSTANTIATE_TEST_SUITE_P(RandomProblems, SimdChunkTilesRandomTensors,
                         testing::Range<std::uint64_t>(0, 60));

constexpr std::int32_t kGates[] = {0,
                                   ops::kGateG,
                                   ops::kGateGk,
                                   ops::kGateG | ops::kGateGv,
                                   ops::kGateGk | ops::kGateGv,
                                   ops::kGateGamma | ops::kGateGk};

// States of whole tiles are read where they lie.
TEST(SimdChunkTiles, AgreeAcrossEveryEdgeOfAChunk) {
  for (const std::int64_t tokens : {1, 15, 16, 17, 31, 33, 64, 65, 100}) {
    for (const std::int32_t gates : kGates) {
      for (const bool is_whole : {false, true}) {
        SCOPED_TRACE(str("T=", tokens, " gates=", gates, " whole tiles: ", is_whole));
        RecurrentTensors tensors({.T = tokens,
                                  .H = 2,
                                  .Hkv = 1,
                                  .K = is_whole ? 32 : 33,
                                  .V = is_whole ? 64 : 40,
                                  .dtype = DType::kBF16,
                                  .gates = gates,
                                  .h0 = true},
                                 static_cast<std::uint64_t>(tokens));
        expect_the_formula(tensors);
      }
    }
  }
}

TEST(SimdChunkTiles, TakeAnySizes) {
  for (const std::int64_t channels : {16, 31, 64, 100}) {
    for (const std::int64_t columns : {16, 32, 47, 64, 96}) {
      for (const std::int32_t gates : kGates) {
        SCOPED_TRACE(str("K=", channels, " V=", columns, " gates=", gates));
        RecurrentTensors tensors({.T = 70,
                                  .H = 1,
                                  .Hkv = 1,
                                  .K = channels,
                                  .V = columns,
                                  .dtype = DType::kBF16,
                                  .gates = gates,
                                  .h0 = true},
                                 static_cast<std::uint64_t>(channels));
        expect_the_formula(tensors);
      }
    }
  }
}

TEST(SimdChunkTiles, GiveTheSameBitsHoweverWorkIsDivided) {
  for (const std::int32_t gates : kGates) {
    SCOPED_TRACE(gates);
    RecurrentTensors tensors({.T = 140,
                              .H = 3,
                              .Hkv = 1,
                              .K = 40,
                              .V = 136,
                              .dtype = DType::kBF16,
                              .gates = gates,
                              .h0 = true},
                             6);
    const std::vector<double> expected = outputs(tensors, {{"threads", "1"}});
    for (const char* const threads : {"2", "8"}) {
      EXPECT_EQ(outputs(tensors, {{"threads", threads}}), expected) << threads;
    }
    for (const char* const tile_v : {"32", "64"}) {
      EXPECT_EQ(outputs(tensors, {{"tile_v", tile_v}}), expected) << tile_v;
    }
    for (const char* const stream : {"no", "yes"}) {
      EXPECT_EQ(outputs(tensors, {{"stream", stream}, {"prefetch", "no"}}), expected);
      EXPECT_EQ(outputs(tensors, {{"stream", stream}, {"prefetch", "yes"}}), expected);
    }
  }
}

// ---- decays of any size ----

/// A problem with one gate, which `decay_of(i)` gives each element of.
template <class DecayOf>
RecurrentTensors with_decays(std::int64_t tokens, std::int32_t gate, DecayOf&& decay_of) {
  RecurrentTensors tensors({.T = tokens,
                            .H = 2,
                            .Hkv = 2,
                            .K = 20,
                            .V = 24,
                            .dtype = DType::kBF16,
                            .gates = gate,
                            .h0 = true},
                           17);
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

constexpr std::int32_t kEachGate[] = {ops::kGateG, ops::kGateGamma, ops::kGateGk, ops::kGateGv,
                                      ops::kGateGk | ops::kGateGv};

// -4 a token is beyond what keys of 16 tokens are divided by, -3 is not.
TEST(SimdChunkTiles, TakeAnyDecay) {
  const double reset = -std::numeric_limits<double>::infinity();
  for (const std::int32_t gate : kEachGate) {
    for (const double decay : {-0.5, -3.0, -4.0, -30.0, -1e4, reset}) {
      SCOPED_TRACE(str("gate ", gate, ", decay ", decay));
      RecurrentTensors always = with_decays(70, gate, [&](std::size_t) { return decay; });
      expect_the_formula(always);
      RecurrentTensors sometimes = with_decays(
          70, gate, [&](std::size_t i) { return i % 11 == 3 ? decay : -0.01 * double(i % 5); });
      expect_the_formula(sometimes);
    }
  }
}

// Chunks of moderate decays leave theirs to the next one to apply, strong ones do not.
TEST(SimdChunkTiles, TakeDecaysThatChangeFromChunkToChunk) {
  constexpr std::size_t kChannels = 2 * 20;
  for (const std::int32_t gates : {+ops::kGateGk, ops::kGateGamma | ops::kGateGk}) {
    for (const bool begins_strong : {false, true}) {
      SCOPED_TRACE(str("gates ", gates, ", begins strong ", begins_strong));
      RecurrentTensors tensors = with_decays(200, gates, [&](std::size_t i) {
        return (i / kChannels / 64 % 2 == 1) != begins_strong ? -3.0 : -0.1;
      });
      expect_the_formula(tensors);
    }
  }
}

// Sums of logs go on from chunk to chunk until they are too large, or begin above zero, or are too
// large within a chunk.
TEST(SimdChunkTiles, TakeTokenDecaysThatChangeFromChunkToChunk) {
  constexpr double kDecays[] = {-0.3, -0.3, -1.0, 0.1, -0.01, -3.0, -0.6, 0.0, -1.2};
  for (const std::size_t first : {0, 2, 3, 5, 8}) {
    SCOPED_TRACE(first);
    RecurrentTensors tensors = with_decays(9 * 64 - 7, ops::kGateG, [&](std::size_t i) {
      return kDecays[(i / 2 / 64 + first) % std::size(kDecays)];
    });
    expect_the_formula(tensors);
  }
}

// The error of a chunk's decay must not add up: exp of the summed logs, what it rounds off carried.
TEST(SimdChunkTiles, KeepASlowDecayForAThousandTokens) {
  for (const std::int32_t gate : kEachGate) {
    SCOPED_TRACE(gate);
    RecurrentTensors tensors = with_decays(1024, gate, [](std::size_t) { return -1e-4; });
    expect_the_formula(tensors);
  }
}

TEST(SimdChunkTiles, KeepANaNInItsHead) {
  for (const std::int32_t gates : kGates) {
    RecurrentTensors tensors(
        {.T = 70, .H = 2, .Hkv = 2, .K = 20, .V = 24, .dtype = DType::kBF16, .gates = gates}, 3);
    const ConstTensorView k = tensors.forward.k.slice(2, 0, 1);
    assign(TensorView(const_cast<void*>(k.data), k.dtype, k.shape, k.strides),
           std::vector<double>(70 * 20, std::numeric_limits<double>::quiet_NaN()));
    run_tiles(tensors, {});
    for (const double x : to_doubles(tensors.forward.o.slice(2, 0, 1))) EXPECT_TRUE(std::isnan(x));
    for (const double x : to_doubles(tensors.forward.o.slice(2, 1, 2))) EXPECT_FALSE(std::isnan(x));
  }
}

// ---- what a tuner is told ----

TEST(SimdChunkTiles, AreForBf16OnCpusThatHaveThem) {
  DeviceInfo device = cpu_device().info();
  device.features = {"avx2",     "fma",      "f16c",        "avx512f", "avx512bw",
                     "avx512dq", "avx512vl", "avx512_bf16", "amx_bf16"};
  RecurrentAttentionProblem problem{
      .T = 64, .H = 2, .Hkv = 2, .K = 64, .V = 64, .dtype = DType::kBF16};
  const auto code = [&] {
    return kernel().erased_supports(ProblemRef::of<RecurrentAttention>(problem), device).code();
  };
  EXPECT_EQ(code(), "");
  problem.dtype = DType::kF16;
  EXPECT_EQ(code(), refused::kDType);
  device.features.pop_back();
  EXPECT_EQ(code(), refused::kDevice);
}

TEST(SimdChunkTiles, TryAFewDozenConfigsOnAnyCpu) {
  const RecurrentAttentionProblem large{
      .B = 2, .T = 2048, .H = 16, .Hkv = 16, .K = 128, .V = 128, .dtype = DType::kBF16};
  for (const int cores : {1, 2, 6, 64, 256}) {
    DeviceInfo device = cpu_device().info();
    device.cores = cores;
    const std::size_t count =
        kernel().erased_candidates(ProblemRef::of<RecurrentAttention>(large), device).size();
    EXPECT_GE(count, 8U);
    EXPECT_LE(count, 40U);
  }
}

// Within a chunk exp of either side's logs overflows where that of their sum does not.
TEST(SimdChunkTiles, TakeGatesOfBothSidesThatCancel) {
  for (const std::int32_t key_gate : {+ops::kGateGk, +ops::kGateG}) {
    for (const double log_decay : {8.0, -8.0, 90.0, -90.0}) {
      for (const bool alternating : {false, true}) {
        SCOPED_TRACE(str("gate=", key_gate, " log=", log_decay, " alternating=", alternating));
        RecurrentTensors tensors = gates_that_cancel({.T = 70,
                                                      .H = 2,
                                                      .Hkv = 1,
                                                      .K = 20,
                                                      .V = 40,
                                                      .dtype = DType::kBF16,
                                                      .gates = key_gate | ops::kGateGv,
                                                      .h0 = true,
                                                      .ht = true},
                                                     log_decay, alternating);
        expect_the_formula(tensors);
      }
    }
  }
}

}  // namespace
}  // namespace attune::test
