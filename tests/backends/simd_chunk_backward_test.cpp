// simd.chunk.backward where its chunks, anchors and parts of groups begin and end.
// simd_backward_test.cpp has what it shares with the recurrent kernel.
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/backward_runs.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttentionProblem;
using testing::Each;

constexpr std::int32_t kAllGates = ops::kGateG | ops::kGateGamma | ops::kGateGk | ops::kGateGv;
constexpr double kReset = -std::numeric_limits<double>::infinity();

/// Inputs are handed out as constant; here they are still being made.
TensorView writable(const ConstTensorView& view) {
  return TensorView(const_cast<void*>(view.data), view.dtype, view.shape, view.strides);
}

template <class Change>
void change_values(const std::optional<ConstTensorView>& view, const Change& change) {
  if (!view) return;
  std::vector<double> values = to_doubles(*view);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = change(i, values[i]);
  assign(writable(*view), values);
}

template <class Change>
void change_gates(const RecurrentTensors& tensors, const Change& change) {
  change_values(tensors.backward.g, change);
  change_values(tensors.backward.gk, change);
  change_values(tensors.backward.gv, change);
}

std::vector<std::vector<double>> gradients(const RecurrentTensors& tensors) {
  const auto& b = tensors.backward;
  std::vector<std::vector<double>> all{to_doubles(b.dq), to_doubles(b.dk), to_doubles(b.dv)};
  for (const auto& view : {b.dg, b.dgk, b.dgv, b.dgamma, b.dinitial_state}) {
    if (view) all.push_back(to_doubles(*view));
  }
  return all;
}

std::vector<std::vector<double>> gradients_of(const RecurrentAttentionProblem& problem,
                                              const Params& overrides) {
  const RecurrentTensors tensors(problem, 5);
  run_simd_backward(kChunkBackward, tensors, overrides);
  return gradients(tensors);
}

/// The kernel and the reference on the same inputs, changed by `change`.
template <class Change>
void expect_like_reference_after(const RecurrentAttentionProblem& problem, const Params& overrides,
                                 const Change& change) {
  const RecurrentTensors simd(problem, 11), reference(problem, 11);
  change(simd);
  change(reference);
  run_simd_backward(kChunkBackward, simd, overrides);
  run_reference_backward(reference);
  expect_like_reference(simd, reference);
}

// A launch has no more threads than tasks: of 8 allowed, 3 and 7 run.
TEST(SimdChunkBackward, GivesTheSameBitsOn1And2And3And7Threads) {
  for (const std::int64_t heads : {3, 7}) {
    for (const std::int64_t kv_heads : {heads, std::int64_t{1}}) {
      const RecurrentAttentionProblem problem{.T = 75,
                                              .H = heads,
                                              .Hkv = kv_heads,
                                              .K = 33,
                                              .V = 20,
                                              .gates = kAllGates,
                                              .h0 = true,
                                              .ht = true};
      const auto with_threads = [&](const char* threads) {
        return gradients_of(problem, {{"threads", threads}, {"group_parts", "8"}});
      };
      const auto expected = with_threads("1");
      for (const char* const threads : {"2", "4", "8"}) {
        EXPECT_EQ(with_threads(threads), expected) << heads << " heads, threads=" << threads;
      }
    }
  }
}

TEST(SimdChunkBackward, AddsPartsOfAGroupUp) {
  const RecurrentAttentionProblem problem{
      .B = 2, .T = 50, .H = 10, .Hkv = 2, .K = 20, .V = 33, .gates = ops::kGateG};
  for (const char* const parts : {"1", "2", "4", "8"}) {
    expect_like_reference(kChunkBackward, problem, 3, {{"group_parts", parts}});
  }
}

// Slow decays: the gradient at a token is a small difference of sums over thousands of tokens.
TEST(SimdChunkBackward, GateGradientsStayExactOverLongSequences) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int32_t gate : {ops::kGateG, ops::kGateGk, ops::kGateGv}) {
      const RecurrentAttentionProblem problem{
          .T = 8192, .H = 1, .Hkv = 1, .K = 16, .V = 16, .dtype = dtype, .gates = gate};
      expect_like_reference_after(problem, {}, [](const RecurrentTensors& tensors) {
        change_gates(tensors, [](std::size_t, double value) { return 1e-4 * (value - 1.0); });
      });
    }
  }
}

TEST(SimdChunkBackward, TakesDecaysOfAnySize) {
  const RecurrentAttentionProblem plain{
      .T = 150, .H = 2, .Hkv = 1, .K = 20, .V = 17, .h0 = true, .ht = true};
  for (const std::int32_t gates : {int{ops::kGateG}, int{ops::kGateGk}, int{ops::kGateGv},
                                   ops::kGateG | ops::kGateGv, int{kAllGates}}) {
    RecurrentAttentionProblem problem = plain;
    problem.gates = gates;
    expect_like_reference_after(problem, {}, [](const RecurrentTensors& tensors) {
      change_gates(tensors, [](std::size_t i, double value) {
        return i % 3 == 0 ? -40.0 * std::abs(value) : i % 3 == 1 ? -1e-5 : value;
      });
    });
  }
}

// Resets at the first and last tokens of chunks and of stretches between anchors.
TEST(SimdChunkBackward, AResetEndsAllGradientsWhereverItFalls) {
  for (const std::int64_t token : {0, 1, 15, 16, 63, 64, 80, 99}) {
    const RecurrentAttentionProblem problem{.T = 100,
                                            .H = 1,
                                            .Hkv = 1,
                                            .K = 5,
                                            .V = 3,
                                            .gates = ops::kGateG | ops::kGateGv,
                                            .h0 = true,
                                            .ht = true};
    const auto reset = [&](const RecurrentTensors& tensors) {
      change_values(tensors.backward.g, [&](std::size_t i, double value) {
        return static_cast<std::int64_t>(i) == token ? kReset : value;
      });
    };
    expect_like_reference_after(problem, {{"anchor_tokens", "64"}}, reset);
    const RecurrentTensors tensors(problem, 11);
    reset(tensors);
    run_simd_backward(kChunkBackward, tensors, {{"anchor_tokens", "64"}});
    EXPECT_EQ(to_doubles(*tensors.backward.dg)[static_cast<std::size_t>(token)], 0.0);
    if (token == 0) {
      EXPECT_THAT(to_doubles(*tensors.backward.dinitial_state), Each(0.0));
    }
  }
}

TEST(SimdChunkBackward, ResetsOfChannelsEndTheirGradients) {
  const RecurrentAttentionProblem problem{
      .T = 40, .H = 2, .Hkv = 2, .K = 18, .V = 19, .gates = kAllGates, .h0 = true, .ht = true};
  expect_like_reference_after(problem, {}, [](const RecurrentTensors& tensors) {
    change_values(tensors.backward.gk,
                  [](std::size_t i, double value) { return i % 7 == 0 ? kReset : value; });
    change_values(tensors.backward.gv,
                  [](std::size_t i, double value) { return i % 11 == 0 ? kReset : value; });
  });
}

TEST(SimdChunkBackward, TakesSequencesThatEndAnywhereInAChunk) {
  const std::vector<double> bounds{0, 0, 1, 16, 33, 33, 65, 80, 97};
  for (const char* const parts : {"1", "2"}) {
    for (const bool reverse : {false, true}) {
      const RecurrentAttentionProblem problem{.T = 97,
                                              .H = 4,
                                              .Hkv = 2,
                                              .K = 9,
                                              .V = 18,
                                              .N = 8,
                                              .gates = kAllGates,
                                              .h0 = true,
                                              .ht = true,
                                              .reverse = reverse};
      expect_like_reference_after(problem, {{"group_parts", parts}},
                                  [&](const RecurrentTensors& tensors) {
                                    assign(writable(*tensors.backward.cu_seqlens), bounds);
                                  });
    }
  }
}

// What is kept, and how gradients are written, changes no bit of them but those of decays per
// channel, whose rounding carries on in the direction in which they are made.
TEST(SimdChunkBackward, KeepsAnyNumberOfChunksAndWritesPastTheCaches) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const std::int32_t gates : {0, int{ops::kGateG}, int{kAllGates}}) {
      const RecurrentAttentionProblem problem{.T = 530,
                                              .H = 2,
                                              .Hkv = 1,
                                              .K = 64,
                                              .V = 40,
                                              .dtype = dtype,
                                              .gates = gates,
                                              .h0 = true,
                                              .ht = true};
      const auto expected = gradients_of(problem, {{"kept_tokens", "512"}, {"stream", "no"}});
      for (const char* const kept : {"0", "512", "2048"}) {
        const Params streamed{{"kept_tokens", kept}, {"stream", "yes"}};
        expect_like_reference(kChunkBackward, problem, 5, streamed);
        if (gates != kAllGates || kept == std::string_view("512")) {
          EXPECT_EQ(gradients_of(problem, streamed), expected) << kept;
        }
      }
    }
  }
}

// Chunks of 32 run where no channel has a decay of its own.
TEST(SimdChunkBackward, TakesLongerChunks) {
  for (const std::int32_t gates : {0, int{ops::kGateG}}) {
    const RecurrentAttentionProblem problem{
        .T = 203, .H = 2, .Hkv = 1, .K = 20, .V = 33, .gates = gates, .h0 = true, .ht = true};
    expect_like_reference(kChunkBackward, problem, 9, {{"chunk", "32"}});
  }
}

TEST(SimdChunkBackward, RunsOnEveryInstructionSetThatTheCpuHas) {
  const ErasedKernel& kernel = simd_backward_kernel(kChunkBackward);
  for (const std::int32_t gates : {0, int{ops::kGateG}, int{kAllGates}}) {
    const RecurrentAttentionProblem problem{
        .T = 70, .H = 2, .Hkv = 1, .K = 37, .V = 52, .gates = gates, .h0 = true, .ht = true};
    for (const char* const isa : {"baseline", "avx2", "avx512"}) {
      const Params overrides{{"isa", isa}, {"group_parts", "2"}};
      if (kernel.erased_fits(ProblemRef::of<ops::RecurrentAttentionBackward>(problem),
                             cpu_device().info(), kernel.parse(overrides))) {
        expect_like_reference(kChunkBackward, problem, 13, overrides);
      }
    }
  }
}

// Heads of a thread follow one another in the same scratch memory.
TEST(SimdChunkBackward, ANanStaysInItsHead) {
  const RecurrentAttentionProblem problem{
      .T = 37, .H = 2, .Hkv = 2, .K = 18, .V = 5, .gates = kAllGates};
  const RecurrentTensors clean(problem, 2), spoilt(problem, 2);
  const auto nan_in_first_head = [](std::size_t width) {
    return
        [width](std::size_t i, double value) { return i / width % 2 == 0 ? std::nan("") : value; };
  };
  change_values(spoilt.backward.v, nan_in_first_head(5));
  change_values(spoilt.backward.gk, nan_in_first_head(18));
  for (const RecurrentTensors* const tensors : {&clean, &spoilt}) {
    run_simd_backward(kChunkBackward, *tensors, {{"threads", "1"}});
  }
  for (const auto& [width, of] :
       {std::pair{std::size_t{18}, &ops::RecurrentAttentionBackwardArgs::dq},
        std::pair{std::size_t{18}, &ops::RecurrentAttentionBackwardArgs::dk},
        std::pair{std::size_t{5}, &ops::RecurrentAttentionBackwardArgs::dv}}) {
    const std::vector<double> expected = to_doubles(clean.backward.*of);
    const std::vector<double> got = to_doubles(spoilt.backward.*of);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const bool is_first_head = i / width % 2 == 0;
      if (!is_first_head) {
        EXPECT_EQ(got[i], expected[i]);
      }
    }
  }
}

}  // namespace
}  // namespace attune::test
