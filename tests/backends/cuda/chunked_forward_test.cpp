// What conformance does not reach of the chunked forward kernels: long sequences in segments,
// decays that forget everything, states that leave the range of f16, final states in place, calls
// that continue others.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/case.hpp>
#include <attune/ops/recurrent_attention.hpp>

#include "backends/cuda/gpu.hpp"
#include "support/random_tensor.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttentionOptions;
using ops::RecurrentAttentionResult;

constexpr double kTolerance = 5e-3;
constexpr double kF32Tolerance = 2e-5;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Two heads of a sequence; every test replaces what it is about.
struct LongSequence {
  LongSequence(std::int64_t tokens, std::int64_t keys, std::int64_t values, DType dtype)
      : q(random({1, tokens, 2, keys}, dtype)),
        k(random({1, tokens, 2, keys}, dtype)),
        v(random({1, tokens, 2, values}, dtype)),
        g(random.log_decays({1, tokens, 2})),
        initial_state(random({1, 2, keys, values})) {}

  RandomTensors random{1};
  Tensor q, k, v, g, initial_state;
  bool reverse = false;
};

struct KernelConfig {
  const char *needs;
  const char *config;  // the rest is the heuristic's
  bool f32 = false;    // in place of a test's 16-bit type

  friend std::ostream &operator<<(std::ostream &out, const KernelConfig &c) {
    return out << (c.f32 ? "f32 " : "") << c.config;
  }
};

class ChunkedForward : public testing::TestWithParam<KernelConfig> {
 protected:
  void SetUp() override {
    if (gpu_ == nullptr) GTEST_SKIP() << kNeedsGpu;
    if (!gpu_->info().has(GetParam().needs)) GTEST_SKIP() << "needs " << GetParam().needs;
  }

  static DType type_or(DType usual) { return GetParam().f32 ? DType::kF32 : usual; }
  static double tolerance() { return GetParam().f32 ? kF32Tolerance : kTolerance; }

  static ops::CallOptions call(const char *platform, std::string_view config = {}) {
    return {.platform = platform, .config = config, .context = &heuristic_context()};
  }

  /// Holds the kernel, with the parameter's config, against the oracle.
  void expect_near_oracle(const LongSequence &inputs) const {
    const RecurrentAttentionResult expected =
        ops::recurrent_attention(inputs.q, inputs.k, inputs.v,
                                 {.g = inputs.g,
                                  .initial_state = inputs.initial_state,
                                  .reverse = inputs.reverse,
                                  .want_final_state = true,
                                  .call = call("reference")});

    const Tensor q = upload(inputs.q, *gpu_);
    const Tensor k = upload(inputs.k, *gpu_);
    const Tensor v = upload(inputs.v, *gpu_);
    const Tensor g = upload(inputs.g, *gpu_);
    Tensor state = upload(inputs.initial_state, *gpu_);
    Tensor o(inputs.v.dtype(), inputs.v.shape(), *gpu_);
    ops::recurrent_attention_into({.o = o, .final_state = state}, q, k, v,
                                  {.g = g,
                                   .initial_state = state,
                                   .reverse = inputs.reverse,
                                   .call = call("cuda", GetParam().config)});
    EXPECT_LE(error_of(o, expected.o), tolerance());
    EXPECT_LE(error_of(state, *expected.final_state), tolerance());
  }

  double error_of(const Tensor &actual, const Tensor &expected) const {
    return relative_rms_error(to_doubles(to_host(actual, *gpu_)), to_doubles(expected));
  }

  const Device *gpu_ = find_gpu();
};
INSTANTIATE_TEST_SUITE_P(
    Configs, ChunkedForward,
    testing::Values(
        KernelConfig{"sm_90a", "kernel=cuda.chunk_wgmma,segments=1"},
        KernelConfig{"sm_90a", "kernel=cuda.chunk_wgmma,segments=4"},
        KernelConfig{"sm_90a", "kernel=cuda.chunk_wgmma,segments=8"},
        KernelConfig{"sm_90a", "kernel=cuda.parallel_wgmma,tile_v=64,chunks=1"},
        KernelConfig{"sm_90a", "kernel=cuda.parallel_wgmma,tile_v=128,chunks=2"},
        KernelConfig{"sm_80", "kernel=cuda.chunk_mma,warps=4,chunk=32,stages=2,segments=1"},
        KernelConfig{"sm_80", "kernel=cuda.chunk_mma,warps=4,chunk=32,stages=3,segments=4"},
        KernelConfig{"sm_80", "kernel=cuda.chunk_mma,warps=8,chunk=32,stages=2,segments=16"},
        KernelConfig{"sm_80", "kernel=cuda.chunk_mma,warps=4,chunk=64,stages=2,segments=2"},
        KernelConfig{"sm_80", "kernel=cuda.chunk_mma,warps=8,chunk=64,stages=2,segments=8"},
        KernelConfig{"sm_80", "kernel=cuda.chunk_mma,warps=8,chunk=64,stages=3,segments=16"},
        KernelConfig{"sm_80", "kernel=cuda.chunk_mma,warps=4,stages=2,segments=1", true},
        KernelConfig{"sm_80", "kernel=cuda.chunk_mma,warps=4,stages=3,segments=16", true},
        KernelConfig{"sm_80", "kernel=cuda.chunk_mma,warps=8,stages=2,segments=8", true},
        KernelConfig{"sm_80", "kernel=cuda.chunk_mma,warps=8,stages=3,segments=2", true}));

TEST_P(ChunkedForward, WalksLongSequencesInSegmentsAndInPlace) {
  for (const bool reverse : {false, true}) {
    SCOPED_TRACE(reverse ? "reverse" : "forward");
    LongSequence inputs(2000, 96, 72, type_or(DType::kBF16));
    for (float &gate : inputs.g.values<float>()) gate /= 16;  // segments see one another
    inputs.reverse = reverse;
    expect_near_oracle(inputs);
  }
}

TEST_P(ChunkedForward, StrongDecaysForgetAndMakeNoNan) {
  for (const float decay : {-60.0F, -1e4F, -1e30F, -kInfinity}) {
    SCOPED_TRACE(decay);
    LongSequence inputs(300, 64, 64, type_or(DType::kF16));
    for (float &gate : inputs.g.values<float>()) gate = decay;
    expect_near_oracle(inputs);
  }
}

TEST_P(ChunkedForward, WhatFollowsAResetKeepsItsPrecision) {
  for (const float decay : {-60.0F, -1e30F, -kInfinity}) {
    SCOPED_TRACE(decay);
    LongSequence inputs(2000, 128, 128, type_or(DType::kBF16));
    const std::span<float> gates = inputs.g.values<float>();
    for (std::size_t i = 0; i < gates.size(); ++i) {
      if (i % 97 == 5 || (i > 600 && i < 720)) gates[i] = decay;  // apart, and a chunk full
    }
    expect_near_oracle(inputs);
  }
}

TEST_P(ChunkedForward, AStateBeyondTheRangeOfF16IsRead) {
  if (GetParam().f32) GTEST_SKIP() << "f32 has the range of states";
  LongSequence inputs(2000, 64, 64, DType::kF16);
  for (f16 &key : inputs.k.values<f16>()) key = f16(8.0F);
  for (f16 &value : inputs.v.values<f16>()) value = f16(8.0F);
  for (f16 &query : inputs.q.values<f16>()) query = f16(1.0F / 64.0F);
  for (float &gate : inputs.g.values<float>()) gate = -1e-5F;
  expect_near_oracle(inputs);  // 128,000 times 64 elements, o about 16,000
}

/// Padded rows of the last chunk once made NaN of the states of 26 of 32 heads
/// in another library.
TEST_P(ChunkedForward, ATokenPastAChunkLeavesFiniteStates) {
  LongSequence inputs(65, 128, 128, type_or(DType::kBF16));
  for (float &gate : inputs.g.values<float>()) gate = -8.0F;
  expect_near_oracle(inputs);
}

/// Bounds in device memory are not validated: a call with any of them ends, and leaves the GPU well.
TEST_P(ChunkedForward, EndsWhateverTheBoundsAre) {
  const LongSequence inputs(500, 64, 64, type_or(DType::kBF16));
  const Tensor q = upload(inputs.q, *gpu_);
  const Tensor k = upload(inputs.k, *gpu_);
  const Tensor v = upload(inputs.v, *gpu_);
  const Tensor g = upload(inputs.g, *gpu_);
  for (const std::vector<std::int64_t> &wrong :
       {std::vector<std::int64_t>{400, 420, 500}, {0, 300, 100, 500}, {-5, 1000, 40, 480, 7}}) {
    Tensor bounds(DType::kI64, {static_cast<std::int64_t>(wrong.size())});
    std::ranges::copy(wrong, bounds.values<std::int64_t>().begin());
    const Tensor cu_seqlens = upload(bounds, *gpu_);
    Tensor o(inputs.v.dtype(), inputs.v.shape(), *gpu_);
    ops::recurrent_attention_into(
        {.o = o}, q, k, v,
        {.g = g, .cu_seqlens = cu_seqlens, .call = call("cuda", GetParam().config)});
    EXPECT_EQ(to_host(o, *gpu_).shape(), inputs.v.shape());
  }
  expect_near_oracle(inputs);
}

TEST_P(ChunkedForward, APrefillInTwoPartsEqualsOne) {
  constexpr std::int64_t kTokens = 1024;
  constexpr std::int64_t kFirst = 1000;
  const LongSequence inputs(kTokens, 128, 128, type_or(DType::kBF16));
  const Tensor q = upload(inputs.q, *gpu_);
  const Tensor k = upload(inputs.k, *gpu_);
  const Tensor v = upload(inputs.v, *gpu_);
  const Tensor g = upload(inputs.g, *gpu_);
  const auto walk = [&](std::int64_t begin, std::int64_t end, const Tensor *state) {
    const auto part = [&](const Tensor &tensor) { return tensor.view().slice(1, begin, end); };
    RecurrentAttentionOptions options{
        .g = part(g), .want_final_state = true, .call = call("cuda", GetParam().config)};
    if (state != nullptr) options.initial_state = *state;
    return ops::recurrent_attention(part(q), part(k), part(v), options);
  };
  const RecurrentAttentionResult whole = walk(0, kTokens, nullptr);
  const RecurrentAttentionResult first = walk(0, kFirst, nullptr);
  const RecurrentAttentionResult rest = walk(kFirst, kTokens, &*first.final_state);
  EXPECT_LE(error_of(*rest.final_state, to_host(*whole.final_state, *gpu_)), tolerance());
  EXPECT_LE(error_of(rest.o, to_host(whole.o.view().slice(1, kFirst, kTokens), *gpu_)),
            tolerance());
}

/// Tiles of 256 key channels, by their value channels.
class WideStates : public ChunkedForward {};
INSTANTIATE_TEST_SUITE_P(
    Configs, WideStates,
    testing::Values(
        KernelConfig{"sm_90a", "kernel=cuda.chunk_wgmma,tile_k=256,tile_v=64,segments=1"},
        KernelConfig{"sm_90a", "kernel=cuda.chunk_wgmma,tile_k=256,tile_v=64,segments=2"},
        KernelConfig{"sm_90a", "kernel=cuda.chunk_wgmma,tile_k=256,tile_v=128,stages=2,segments=1"},
        KernelConfig{"sm_90a",
                     "kernel=cuda.chunk_wgmma,tile_k=256,tile_v=128,stages=2,segments=4"}));

TEST_P(WideStates, AreThoseOfTheOracle) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const bool reverse : {false, true}) {
      SCOPED_TRACE(str(to_string(dtype), reverse ? " reverse" : ""));
      LongSequence inputs(1000, 256, 200, dtype);
      for (float &gate : inputs.g.values<float>()) gate /= 16;
      inputs.reverse = reverse;
      expect_near_oracle(inputs);
    }
  }
}

TEST_P(WideStates, MayBeOfSlicesOfKeys) {
  LongSequence inputs(300, 392, 120, DType::kBF16);
  for (float &gate : inputs.g.values<float>()) gate /= 16;
  expect_near_oracle(inputs);
}

}  // namespace
}  // namespace attune::test
