// simd.chunk_tiles.backward with its tile registers emulated (emulated_tiles.cpp), so that all but
// the product itself is tested on every machine. Where the CPU has AMX, conformance_test.cpp runs
// the kernel itself.
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/operand_case.hpp>

#include "support/backward_runs.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttentionBackward;
using ops::RecurrentAttentionProblem;
using testing::Each;

constexpr std::string_view kTilesBackward = "simd.chunk_tiles.backward";
constexpr double kReset = -std::numeric_limits<double>::infinity();
constexpr std::int32_t kGates[] = {0, ops::kGateG, ops::kGateG | ops::kGateGamma, ops::kGateGk,
                                   ops::kGateG | ops::kGateGk};
constexpr std::int32_t kOneGate[] = {ops::kGateG, ops::kGateGk};
constexpr std::int32_t kSomeGates[] = {ops::kGateG, ops::kGateGk, ops::kGateG | ops::kGateGk};

TensorView writable(const ConstTensorView& view) {
  return TensorView(const_cast<void*>(view.data), view.dtype, view.shape, view.strides);
}

template <class ValueOf>
void fill(const ConstTensorView& view, const ValueOf& value_of) {
  std::vector<double> values = to_doubles(view);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(i, values[i]);
  assign(writable(view), values);
}

RecurrentAttentionProblem sized(std::int64_t tokens, std::int64_t heads, std::int64_t channels,
                                std::int64_t columns, std::int32_t gates) {
  return {.T = tokens,
          .H = heads,
          .Hkv = heads,
          .K = channels,
          .V = columns,
          .dtype = DType::kBF16,
          .gates = gates,
          .h0 = true,
          .ht = true};
}

/// The kernel and the reference on the same inputs, changed by `change`.
template <class Change>
void expect_like_reference_after(const RecurrentAttentionProblem& problem, const Params& overrides,
                                 const Change& change) {
  SCOPED_TRACE(
      str(problem_text<RecurrentAttentionBackward>(problem), " ", to_text(overrides, ' ')));
  const RecurrentTensors tiles(problem, 11), reference(problem, 11);
  change(tiles);
  change(reference);
  run_simd_backward(kTilesBackward, tiles, overrides);
  run_reference_backward(reference);
  expect_like_reference(tiles, reference);
}

std::vector<double> gradients(const RecurrentAttentionProblem& problem, const Params& overrides) {
  const RecurrentTensors tensors(problem, 5);
  run_simd_backward(kTilesBackward, tensors, overrides);
  const auto& b = tensors.backward;
  std::vector<double> all;
  for (const std::optional<TensorView>& view :
       {std::optional(b.dq), std::optional(b.dk), std::optional(b.dv), b.dg, b.dgk,
        b.dinitial_state}) {
    if (!view) continue;
    for (const double x : to_doubles(*view)) all.push_back(x);
  }
  return all;
}

TEST(SimdChunkTilesBackward, AgreesAcrossEveryEdgeOfAChunk) {
  for (const std::int64_t tokens : {1, 15, 16, 17, 32, 33, 64, 65, 128, 150}) {
    for (const std::int32_t gates : kGates) {
      for (const char* const chunk : {"32", "64"}) {
        expect_like_reference(kTilesBackward, sized(tokens, 2, 33, 40, gates),
                              static_cast<std::uint64_t>(tokens),
                              {{"chunk", chunk}, {"anchor_tokens", "64"}});
      }
    }
  }
}

TEST(SimdChunkTilesBackward, TakesAnySizes) {
  for (const std::int64_t channels : {16, 31, 64, 100}) {
    for (const std::int64_t columns : {16, 47, 64, 96}) {
      for (const std::int32_t gates : kOneGate) {
        expect_like_reference(kTilesBackward, sized(70, 1, channels, columns, gates),
                              static_cast<std::uint64_t>(channels));
      }
    }
  }
}

TEST(SimdChunkTilesBackward, TakesSequencesOfAnyLengthInBothDirections) {
  const std::vector<double> bounds{0, 0, 1, 64, 97, 97, 161, 225, 300};
  for (const bool reverse : {false, true}) {
    for (const std::int32_t gates : kGates) {
      RecurrentAttentionProblem problem = sized(300, 2, 20, 24, gates);
      problem.N = 8;
      problem.reverse = reverse;
      expect_like_reference_after(problem, {{"anchor_tokens", "64"}},
                                  [&](const RecurrentTensors& tensors) {
                                    assign(writable(*tensors.backward.cu_seqlens), bounds);
                                  });
    }
  }
}

TEST(SimdChunkTilesBackward, TakesStridesAndStatesThatAreNotGiven) {
  for (const auto layout : {ops::Layout::kBthd, ops::Layout::kBhtd}) {
    for (const bool states : {false, true}) {
      for (const std::int32_t gates : kOneGate) {
        RecurrentAttentionProblem problem = sized(130, 3, 32, 32, gates);
        problem.B = 2;
        problem.layout = layout;
        problem.h0 = problem.ht = states;
        expect_like_reference(kTilesBackward, problem, 8);
      }
    }
  }
}

TEST(SimdChunkTilesBackward, SumsOverTheHeadsOfAGroup) {
  for (const std::int32_t gates : kGates) {
    for (const std::int64_t kv_heads : {1, 2}) {
      RecurrentAttentionProblem problem = sized(150, 6, 33, 20, gates);
      problem.Hkv = kv_heads;
      problem.reverse = kv_heads == 2;
      expect_like_reference(kTilesBackward, problem, 4, {{"kept_tokens", "0"}});
      expect_like_reference(kTilesBackward, problem, 4);
    }
  }
}

TEST(SimdChunkTilesBackward, GivesTheSameBitsHoweverWorkIsDivided) {
  for (const auto& [heads, gates] :
       {std::pair{3, ops::kGateG | ops::kGateGamma}, std::pair{5, ops::kGateGk + 0}}) {
    RecurrentAttentionProblem problem = sized(300, 2 * heads, 33, 20, gates);
    problem.Hkv = heads;
    const std::vector<double> expected = gradients(problem, {{"threads", "1"}});
    for (const char* const threads : {"2", "4", "8"}) {
      EXPECT_EQ(gradients(problem, {{"threads", threads}}), expected) << threads;
    }
    for (const char* const kept : {"0", "256"}) {
      EXPECT_EQ(gradients(problem, {{"kept_tokens", kept}}), expected) << kept;
      EXPECT_EQ(gradients(problem, {{"kept_tokens", kept}, {"stream", "yes"}}), expected) << kept;
    }
  }
}

// With a gk, strong decays cut chunks into spans, of which the shortest divide by nothing.
TEST(SimdChunkTilesBackward, TakesDecaysOfAnySize) {
  for (const double decay : {-0.5, -4.0, -40.0, -1e4, kReset}) {
    for (const std::int32_t gates : kSomeGates) {
      for (const std::size_t every : {2, 11, 63}) {
        const auto set = [&](std::size_t i, double value) {
          return i % every == 1 ? decay : i % 2 == 0 ? -1e-5 : value;
        };
        expect_like_reference_after(
            sized(130, 1, 20, 24, gates), {{"anchor_tokens", "64"}},
            [&](const RecurrentTensors& tensors) {
              fill(gates == ops::kGateG ? *tensors.backward.g : *tensors.backward.gk, set);
            });
      }
    }
  }
}

// Chunks that are cut beside ones that are not, whose states wait to decay by as much as may be.
TEST(SimdChunkTilesBackward, TakesDecaysThatGrowAndFade) {
  constexpr std::size_t kChannels = 20;
  for (const double strongest : {-0.9, -1.8, -3.0, -6.0}) {
    for (const char* const kept : {"0", "1024"}) {
      expect_like_reference_after(
          sized(330, 1, kChannels, 24, ops::kGateGk),
          {{"anchor_tokens", "64"}, {"kept_tokens", kept}}, [&](const RecurrentTensors& tensors) {
            fill(*tensors.backward.gk, [&](std::size_t i, double) {
              const std::size_t wave = (i / kChannels / 40 + i % kChannels) % 3;
              return strongest * static_cast<double>(wave) / 2 - 1e-3;
            });
          });
    }
  }
}

// Resets at the first and last tokens of chunks and of stretches between anchors.
TEST(SimdChunkTilesBackward, AResetEndsAllGradientsWhereverItFalls) {
  constexpr std::size_t kChannels = 16;
  for (const std::int64_t token : {0, 1, 63, 64, 100, 128, 149}) {
    for (const std::int32_t gates : kOneGate) {
      const RecurrentAttentionProblem problem = sized(150, 1, kChannels, 16, gates);
      const std::size_t per_token = gates == ops::kGateGk ? kChannels : 1;
      const auto reset = [&](const RecurrentTensors& tensors) {
        fill(gates == ops::kGateG ? *tensors.backward.g : *tensors.backward.gk,
             [&](std::size_t i, double value) {
               return static_cast<std::int64_t>(i / per_token) == token ? kReset : value;
             });
      };
      expect_like_reference_after(problem, {{"anchor_tokens", "64"}}, reset);
      const RecurrentTensors tensors(problem, 11);
      reset(tensors);
      run_simd_backward(kTilesBackward, tensors, {{"anchor_tokens", "64"}});
      const std::vector<double> gradients =
          to_doubles(gates == ops::kGateG ? *tensors.backward.dg : *tensors.backward.dgk);
      const auto first = gradients.begin() + token * static_cast<std::int64_t>(per_token);
      EXPECT_THAT(std::vector(first, first + static_cast<std::int64_t>(per_token)), Each(0.0));
      if (token == 0) {
        EXPECT_THAT(to_doubles(*tensors.backward.dinitial_state), Each(0.0));
      }
    }
  }
}

// The gradient of a constant decay sums up those of all tokens, and errors with them: what a chunk
// carries on must not be in it for all of the next one.
TEST(SimdChunkTilesBackward, GradientsOfConstantDecaysKeepTheirDigits) {
  for (const std::int64_t tokens : {64, 200, 500}) {
    expect_like_reference(kTilesBackward, sized(tokens, 8, 32, 32, ops::kGateGamma), 3);
  }
}

// The gradient at a token is a small difference of sums over thousands of tokens.
TEST(SimdChunkTilesBackward, GateGradientsStayExactOverLongSequences) {
  const auto slow = [](std::size_t, double value) { return 1e-4 * (value - 1.0); };
  expect_like_reference_after(
      sized(4096, 1, 16, 16, ops::kGateG), {},
      [&](const RecurrentTensors& tensors) { fill(*tensors.backward.g, slow); });
  expect_like_reference_after(
      sized(4096, 1, 16, 16, ops::kGateGk), {},
      [&](const RecurrentTensors& tensors) { fill(*tensors.backward.gk, slow); });
}

// Of a final state's gradient, strong gates leave next to nothing but to the last tokens, where it is
// far more than what the others have: it is to be gone from their gradients but for the roundings of f32.
TEST(SimdChunkTilesBackward, KeepsAFinalStatesGradientOutOfGatesThatItDoesNotReach) {
  for (const double gate : {-0.3, -1.0, -5.0}) {
    for (const std::int64_t tokens : {64, 128, 200}) {
      SCOPED_TRACE(str("gates of ", gate, ", ", tokens, " tokens"));
      const RecurrentAttentionProblem problem = sized(tokens, 1, 32, 64, ops::kGateGk);
      const RecurrentTensors tiles(problem, 4), reference(problem, 4);
      for (const RecurrentTensors* const tensors : {&tiles, &reference}) {
        fill(*tensors->backward.gk, [&](std::size_t, double) { return gate; });
        fill(tensors->backward.v, [](std::size_t, double value) { return std::abs(value); });
      }
      run_simd_backward(kTilesBackward, tiles);
      run_reference_backward(reference);
      const std::vector<double> expected = to_doubles(*reference.backward.dgk);
      std::vector<double> errors = to_doubles(*tiles.backward.dgk);
      for (std::size_t i = 0; i < errors.size(); ++i) errors[i] -= expected[i];
      EXPECT_LT(rms(errors), 0.01 * rms(expected));
    }
  }
}

TEST(SimdChunkTilesBackward, ANanStaysInItsHead) {
  const RecurrentAttentionProblem problem = sized(70, 2, 18, 20, ops::kGateG | ops::kGateGk);
  const RecurrentTensors clean(problem, 2), spoilt(problem, 2);
  fill(spoilt.backward.v,
       [](std::size_t i, double value) { return i / 20 % 2 == 0 ? std::nan("") : value; });
  for (const RecurrentTensors* const tensors : {&clean, &spoilt}) {
    run_simd_backward(kTilesBackward, *tensors, {{"threads", "1"}});
  }
  for (const auto of :
       {&ops::RecurrentAttentionBackwardArgs::dq, &ops::RecurrentAttentionBackwardArgs::dk}) {
    const std::vector<double> expected = to_doubles(clean.backward.*of);
    const std::vector<double> got = to_doubles(spoilt.backward.*of);
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (i / 18 % 2 == 1) {
        EXPECT_EQ(got[i], expected[i]);
      }
    }
  }
}

TEST(SimdChunkTilesBackward, SaysWhatItDoesNotTake) {
  DeviceInfo device = cpu_device().info();
  device.features = {"avx2",     "fma",      "f16c",        "avx512f", "avx512bw",
                     "avx512dq", "avx512vl", "avx512_bf16", "amx_bf16"};
  const auto code = [&](const RecurrentAttentionProblem& problem) {
    return simd_backward_kernel(kTilesBackward)
        .erased_supports(ProblemRef::of<RecurrentAttentionBackward>(problem), device)
        .code();
  };
  RecurrentAttentionProblem problem = sized(64, 2, 64, 64, ops::kGateG);
  EXPECT_EQ(code(problem), "");
  problem.gates = ops::kGateG | ops::kGateGk;
  EXPECT_EQ(code(problem), "");
  problem.gates = ops::kGateG | ops::kGateGamma;
  EXPECT_EQ(code(problem), "");
  problem.gates = ops::kGateGk | ops::kGateGamma;
  EXPECT_EQ(code(problem), refused::kFeature);
  problem.gates = ops::kGateGk | ops::kGateGv;
  EXPECT_EQ(code(problem), refused::kFeature);
  problem = sized(63, 2, 64, 64, 0);
  EXPECT_EQ(code(problem), refused::kShape);
  problem = sized(64, 2, 64, 64, 0);
  problem.dtype = DType::kF16;
  EXPECT_EQ(code(problem), refused::kDType);
  problem.dtype = DType::kBF16;
  device.features.pop_back();
  EXPECT_EQ(code(problem), refused::kDevice);
}

}  // namespace
}  // namespace attune::test
