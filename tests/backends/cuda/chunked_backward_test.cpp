// What conformance does not reach of the chunked backward passes: gradients of decays over
// thousands of tokens, from decays that forget almost nothing to those that forget everything, and
// segments.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/case.hpp>
#include <attune/ops/recurrent_attention.hpp>

#include "backends/cuda/gpu.hpp"
#include "support/random_tensor.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttentionGradients;
using ops::RecurrentAttentionOptions;

constexpr double kTensorTolerance = 5e-3;
constexpr double kGateTolerance = 2e-2;
constexpr std::int64_t kHeads = 3;
constexpr std::int64_t kChannels = 64;
/// Beside gates per channel, from nothing forgotten on.
const std::vector<float> kConstantDecays{-1e-3F, -1e-2F, -1e-1F, 0.0F};
constexpr std::int64_t kGammaHeads = 4;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// One sequence in bf16, of three heads where no more are asked for.
struct LongSequence {
  explicit LongSequence(std::int64_t tokens, std::int64_t keys = kChannels,
                        std::int64_t values = kChannels, std::int64_t heads = kHeads)
      : q(random({1, tokens, heads, keys}, DType::kBF16)),
        k(random({1, tokens, heads, keys}, DType::kBF16)),
        v(random({1, tokens, heads, values}, DType::kBF16)),
        d_o(random({1, tokens, heads, values}, DType::kBF16)),
        initial_state(random({1, heads, keys, values})),
        dfinal_state(random({1, heads, keys, values})) {}

  LongSequence on(const Device& gpu) const {
    LongSequence copy(1);
    copy.q = upload(q, gpu);
    copy.k = upload(k, gpu);
    copy.v = upload(v, gpu);
    copy.d_o = upload(d_o, gpu);
    copy.initial_state = upload(initial_state, gpu);
    copy.dfinal_state = upload(dfinal_state, gpu);
    copy.scale = scale;
    return copy;
  }

  RandomTensors random{1};
  Tensor q, k, v, d_o, initial_state, dfinal_state;
  std::optional<double> scale = {};
};

/// The decays of a test: g [1, T, H], gamma [H], gk or gv [1, T, H, 64].
struct Decays {
  std::optional<Tensor> g = {};
  std::optional<Tensor> gamma = {};
  std::optional<Tensor> gk = {};
  std::optional<Tensor> gv = {};

  bool of_channels() const { return gk || gv; }
  Decays on(const Device& gpu) const {
    Decays copy;
    if (g) copy.g = upload(*g, gpu);
    if (gamma) copy.gamma = upload(*gamma, gpu);
    if (gk) copy.gk = upload(*gk, gpu);
    if (gv) copy.gv = upload(*gv, gpu);
    return copy;
  }
};

/// Whose channels have decays.
enum class Sides { kKeys, kValues, kBoth };
constexpr Sides kAllSides[] = {Sides::kKeys, Sides::kValues, Sides::kBoth};

const char* name_of(Sides sides) {
  return sides == Sides::kKeys ? "gk" : sides == Sides::kValues ? "gv" : "gk and gv";
}

/// Gates that make() makes, of each of those sides.
template <class Make>
void set_gates(Decays& decays, Sides sides, Make&& make) {
  if (sides != Sides::kValues) decays.gk = make();
  if (sides != Sides::kKeys) decays.gv = make();
}

std::optional<ConstTensorView> view_of(const std::optional<Tensor>& tensor) {
  return tensor ? std::optional<ConstTensorView>(*tensor) : std::nullopt;
}

RecurrentAttentionGradients gradients_of(
    const LongSequence& inputs, const Decays& decays, bool reverse, const ops::CallOptions& call,
    const std::optional<ConstTensorView>& cu_seqlens = std::nullopt) {
  RecurrentAttentionOptions options{.g = view_of(decays.g), .g_gamma = view_of(decays.gamma)};
  options.gk = view_of(decays.gk);
  options.gv = view_of(decays.gv);
  options.initial_state = inputs.initial_state;
  options.scale = inputs.scale;
  options.reverse = reverse;
  options.cu_seqlens = cu_seqlens;
  options.call = call;
  return ops::recurrent_attention_backward(inputs.q, inputs.k, inputs.v,
                                           {.d_o = inputs.d_o, .dfinal_state = inputs.dfinal_state},
                                           options);
}

class ChunkBackward : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (gpu_ == nullptr) GTEST_SKIP() << kNeedsGpu;
    if (!gpu_->info().has("sm_90a")) GTEST_SKIP() << "needs sm_90a";
  }

  static ops::CallOptions call(const char* platform, std::string_view config = {}) {
    return {.platform = platform, .config = config, .context = &heuristic_context()};
  }

  void expect_near(const ConstTensorView& actual, const ConstTensorView& expected, double tolerance,
                   const char* name) const {
    const Tensor host = to_host(actual, *gpu_);
    EXPECT_LE(relative_rms_error(to_doubles(host.view()), to_doubles(expected)), tolerance) << name;
  }

  /// Holds every gradient against the oracle's, in the parameter's direction.
  void expect_near_oracle(const LongSequence& inputs, const Decays& decays) const {
    const auto expected = gradients_of(inputs, decays, GetParam(), call("reference"));
    const LongSequence device_inputs = inputs.on(*gpu_);
    const Decays device_decays = decays.on(*gpu_);
    const std::vector<const char*> configs =
        decays.of_channels() ? std::vector{"kernel=cuda.gla.backward,segments=1",
                                           "kernel=cuda.gla.backward,segments=4",
                                           "kernel=cuda.gla.backward,segments=32"}
                             : std::vector{"kernel=cuda.chunk_wgmma.backward,segments=1",
                                           "kernel=cuda.chunk_wgmma.backward,segments=4",
                                           "kernel=cuda.chunk_wgmma.backward,segments=32"};
    for (const char* const config : configs) {
      SCOPED_TRACE(config);
      const auto actual =
          gradients_of(device_inputs, device_decays, GetParam(), call("cuda", config));
      expect_near(actual.dq, expected.dq, kTensorTolerance, "dq");
      expect_near(actual.dk, expected.dk, kTensorTolerance, "dk");
      expect_near(actual.dv, expected.dv, kTensorTolerance, "dv");
      expect_near(*actual.dinitial_state, *expected.dinitial_state, kTensorTolerance, "dh0");
      if (decays.g) expect_near(*actual.dg, *expected.dg, kGateTolerance, "dg");
      if (decays.gamma) expect_near(*actual.dg_gamma, *expected.dg_gamma, kGateTolerance, "dgamma");
      if (decays.gk) expect_near(*actual.dgk, *expected.dgk, kGateTolerance, "dgk");
      if (decays.gv) expect_near(*actual.dgv, *expected.dgv, kGateTolerance, "dgv");
    }
  }

  const Device* const gpu_ = find_gpu();
};

TEST_P(ChunkBackward, GradientsOfConstantDecaysHoldOverLongSequences) {
  for (const float gamma : {-1e-3F, -1e-2F, -0.05F, -0.2F, -1.0F, -3.0F}) {
    SCOPED_TRACE(gamma);
    Decays decays;
    decays.gamma = Tensor::of(std::vector<float>{gamma, gamma, gamma}, {kHeads});
    expect_near_oracle(LongSequence(2048), decays);
  }
}

TEST_P(ChunkBackward, GradientsOfEachTokensDecayHoldOverLongSequences) {
  LongSequence inputs(4096);
  for (const double deviation : {1e-3, 0.03, 0.3}) {
    SCOPED_TRACE(deviation);
    Decays decays;
    decays.g = inputs.random({1, 4096, kHeads}, DType::kF32, 0, deviation);
    for (float& g : decays.g->values<float>()) g = -std::abs(g);
    expect_near_oracle(inputs, decays);
  }
}

TEST_P(ChunkBackward, ScalesMayBeNegative) {
  constexpr std::int64_t kTokens = 500;
  for (const double scale : {-0.3, -4.0, 1e-3}) {
    for (const std::int64_t channels : {kChannels, std::int64_t{136}}) {
      SCOPED_TRACE(str("scale ", scale, ", ", channels, " channels"));
      LongSequence inputs(kTokens, channels, channels);
      inputs.scale = scale;
      Decays decays;
      decays.g = inputs.random({1, kTokens, kHeads}, DType::kF32, 0, 0.1);
      for (float& g : decays.g->values<float>()) g = -std::abs(g);
      expect_near_oracle(inputs, decays);
    }
  }
}

// Heads of which a block takes a part of the channels.
TEST_P(ChunkBackward, GradientsOfWideHeadsHoldOverLongSequences) {
  constexpr std::int64_t kTokens = 1000;
  struct Width {
    std::int64_t keys, values;
  };
  for (const Width width : {Width{136, 40}, Width{40, 136}, Width{200, 256}, Width{264, 512},
                            Width{99, 61}, Width{61, 99}, Width{301, 130}}) {
    SCOPED_TRACE(str("K=", width.keys, " V=", width.values));
    LongSequence inputs(kTokens, width.keys, width.values);
    Decays decays;
    decays.g = inputs.random({1, kTokens, kHeads}, DType::kF32, 0, 0.03);
    for (float& g : decays.g->values<float>()) g = -std::abs(g);
    decays.gamma = Tensor::of(std::vector<float>{-1e-3F, -1e-2F, 0.0F}, {kHeads});
    expect_near_oracle(inputs, decays);
  }
}

// The same with a decay for every channel, among them chunks of strong decays.
TEST_P(ChunkBackward, GradientsOfEachChannelOfWideHeadsHold) {
  constexpr std::int64_t kTokens = 450;
  struct Width {
    std::int64_t keys, values;
  };
  for (const Width width : {Width{264, 512}, Width{512, 320}, Width{40, 392}, Width{456, 64},
                            Width{61, 99}, Width{301, 130}}) {
    for (const Sides sides : kAllSides) {
      for (const double deviation : {0.03, 3.0}) {
        SCOPED_TRACE(str("K=", width.keys, " V=", width.values, " ", name_of(sides), deviation));
        LongSequence inputs(kTokens, width.keys, width.values);
        const auto gates_of = [&](std::int64_t channels) {
          Tensor gate = inputs.random({1, kTokens, kHeads, channels}, DType::kF32, 0, deviation);
          for (float& g : gate.values<float>()) g = -std::abs(g);
          return gate;
        };
        Decays decays;
        if (sides != Sides::kValues) decays.gk = gates_of(width.keys);
        if (sides != Sides::kKeys) decays.gv = gates_of(width.values);
        expect_near_oracle(inputs, decays);
      }
    }
  }
}

// Heads from one that forgets nothing in all these tokens to one that forgets each.
TEST_P(ChunkBackward, GradientsOfWideHeadsHoldOver65536Tokens) {
  constexpr std::int64_t kTokens = 65536;
  LongSequence inputs(kTokens, 136, 16);
  Decays decays;
  decays.g = inputs.random({1, kTokens, kHeads});
  const auto gates = decays.g->values<float>();
  for (std::size_t i = 0; i < gates.size(); ++i) {
    const auto head = static_cast<float>(i % kHeads);
    gates[i] = -std::abs(gates[i]) * std::pow(10.0F, -3.0F * head);
  }
  expect_near_oracle(inputs, decays);
}

TEST_P(ChunkBackward, TokensThatForgetEverythingHaveNoGradient) {
  constexpr std::int64_t kTokens = 2100;
  constexpr std::int64_t kEvery = 97;
  for (const float reset : {-60.0F, -kInfinity}) {
    SCOPED_TRACE(reset);
    LongSequence inputs(kTokens);
    Decays decays;
    decays.g = inputs.random({1, kTokens, kHeads}, DType::kF32, -0.02, 0.01);
    for (std::int64_t t = 0; t < kTokens; t += kEvery) {
      decays.g->values<float>()[static_cast<std::size_t>(t * kHeads + 1)] = reset;
    }
    expect_near_oracle(inputs, decays);

    const LongSequence device_inputs = inputs.on(*gpu_);
    const Decays device_decays = decays.on(*gpu_);
    const auto actual = gradients_of(device_inputs, device_decays, GetParam(), call("cuda"));
    const Tensor dg = to_host(*actual.dg, *gpu_);
    // e^-60 times the others' gradients, which are of order 100, and what rounding leaves of them.
    const float tolerance = std::isinf(reset) ? 0.0F : 1e-3F;
    for (std::int64_t t = 0; t < kTokens; t += kEvery) {
      EXPECT_NEAR(dg.values<float>()[static_cast<std::size_t>(t * kHeads + 1)], 0.0F, tolerance)
          << t;
    }
  }
}

TEST_P(ChunkBackward, GradientsOfEachChannelsDecayHoldOverLongSequences) {
  constexpr std::int64_t kTokens = 2085;
  LongSequence inputs(kTokens, kChannels, kChannels, kGammaHeads);
  for (const Sides sides : kAllSides) {
    for (const double deviation : {1e-3, 0.03, 0.3, 1.0, 3.0, 100.0}) {
      SCOPED_TRACE(str(name_of(sides), " ", deviation));
      Decays decays;
      set_gates(decays, sides, [&] {
        Tensor gate =
            inputs.random({1, kTokens, kGammaHeads, kChannels}, DType::kF32, 0, deviation);
        for (float& g : gate.values<float>()) g = -std::abs(g);
        return gate;
      });
      decays.g = inputs.random({1, kTokens, kGammaHeads}, DType::kF32, 0, deviation / 8);
      for (float& g : decays.g->values<float>()) g = -std::abs(g);
      decays.gamma = Tensor::of(kConstantDecays, {kGammaHeads});
      expect_near_oracle(inputs, decays);
    }
  }
}

TEST_P(ChunkBackward, ChannelsThatForgetEverythingHaveNoGradient) {
  constexpr std::int64_t kTokens = 700;
  constexpr std::size_t kEvery = 37;
  LongSequence inputs(kTokens);
  for (const Sides sides : kAllSides) {
    SCOPED_TRACE(name_of(sides));
    Decays decays;
    set_gates(decays, sides, [&] {
      Tensor gate = inputs.random({1, kTokens, kHeads, kChannels}, DType::kF32, -0.02, 0.01);
      const auto gates = gate.values<float>();
      for (std::size_t i = 0; i < gates.size(); i += kEvery) gates[i] = -kInfinity;
      return gate;
    });
    expect_near_oracle(inputs, decays);

    const auto actual = gradients_of(inputs.on(*gpu_), decays.on(*gpu_), GetParam(), call("cuda"));
    for (const auto* gradient : {&actual.dgk, &actual.dgv}) {
      if (!*gradient) continue;
      const Tensor on_host = to_host(**gradient, *gpu_);
      const auto values = on_host.values<float>();
      for (std::size_t i = 0; i < values.size(); i += kEvery) ASSERT_EQ(values[i], 0.0F) << i;
    }
  }
}

// Some chunks are as the decays of most models, and some for the exact kernel.
TEST_P(ChunkBackward, ChunksOfStrongDecaysMayBeAmongOthers) {
  constexpr std::int64_t kTokens = 1000;
  constexpr std::int64_t kStrongFrom = 200;
  constexpr std::int64_t kStrongTo = 420;
  LongSequence inputs(kTokens, kChannels, kChannels, kGammaHeads);
  Decays decays;
  decays.gk = inputs.random({1, kTokens, kGammaHeads, kChannels}, DType::kF32, 0, 0.1);
  const auto gates = decays.gk->values<float>();
  for (std::size_t i = 0; i < gates.size(); ++i) {
    const auto token = static_cast<std::int64_t>(i) / (kGammaHeads * kChannels);
    const bool strong = token >= kStrongFrom && token < kStrongTo && i % 5 == 0;
    gates[i] = -std::abs(gates[i]) * (strong ? 1000.0F : 1.0F);
  }
  decays.gamma = Tensor::of(kConstantDecays, {kGammaHeads});
  expect_near_oracle(inputs, decays);
}

// It has room for one chunk more than it has.
TEST_P(ChunkBackward, OnePackedSequenceIsAsOneThatIsNot) {
  constexpr std::int64_t kTokens = 1024;
  const LongSequence on_host(kTokens);
  const LongSequence inputs = on_host.on(*gpu_);
  Decays decays;
  decays.gk = RandomTensors(2)({1, kTokens, kHeads, kChannels}, DType::kF32, -0.1, 0.01);
  const Decays device_decays = decays.on(*gpu_);
  const Tensor bounds = upload(Tensor::of(std::vector<std::int64_t>{0, kTokens}, {2}), *gpu_);
  for (const char* const config :
       {"kernel=cuda.gla.backward,segments=1", "kernel=cuda.gla.backward,segments=4"}) {
    SCOPED_TRACE(config);
    const auto expected = gradients_of(inputs, device_decays, GetParam(), call("cuda", config));
    const auto actual =
        gradients_of(inputs, device_decays, GetParam(), call("cuda", config), bounds);
    const auto expect_same = [&](const Tensor& one, const Tensor& other, const char* name) {
      expect_near(one, to_host(other, *gpu_), 0, name);
    };
    expect_same(actual.dq, expected.dq, "dq");
    expect_same(actual.dk, expected.dk, "dk");
    expect_same(actual.dv, expected.dv, "dv");
    expect_same(*actual.dgk, *expected.dgk, "dgk");
    expect_same(*actual.dinitial_state, *expected.dinitial_state, "dh0");
  }
}

// Only the sum of a key's and a value's gate counts: one may grow what the other one takes back.
// Channels that a tile has and the head has not have no gate that would.
TEST_P(ChunkBackward, GatesOfBothSidesMayCancel) {
  constexpr std::int64_t kTokens = 300;
  struct Width {
    std::int64_t keys, values;
  };
  for (const Width width : {Width{kChannels, kChannels}, Width{40, 136}, Width{99, 61}}) {
    for (const float mean : {2.0F, -2.0F, 100.0F, -100.0F}) {
      SCOPED_TRACE(str("K=", width.keys, " V=", width.values, " ", mean));
      LongSequence inputs(kTokens, width.keys, width.values);
      const auto moved_by = [&](float by, std::int64_t channels) {
        Tensor gate = inputs.random.log_decays({1, kTokens, kHeads, channels});
        for (float& g : gate.values<float>()) g += by;
        return gate;
      };
      expect_near_oracle(inputs,
                         {.gk = moved_by(mean, width.keys), .gv = moved_by(-mean, width.values)});
    }
  }
}

/// The same elements, the last token first in memory.
ConstTensorView backwards(const ConstTensorView& tensor) {
  ConstTensorView view = tensor;
  const std::int64_t last = (tensor.size(1) - 1) * tensor.stride(1);
  view.data = static_cast<const std::byte*>(tensor.data) +
              last * static_cast<std::int64_t>(size_of(tensor.dtype));
  view.strides[1] = -tensor.stride(1);
  return view;
}
/// The first head in the place of all.
ConstTensorView repeated(const ConstTensorView& tensor) {
  ConstTensorView view = tensor;
  view.strides[2] = 0;
  return view;
}

// Strides of 0 and less, which tensor maps have not: rows are copied, in whole pieces and others.
TEST_P(ChunkBackward, RowsMayLieInAnyOrder) {
  constexpr std::int64_t kTokens = 300;
  for (const std::int64_t channels : {kChannels, std::int64_t{99}}) {
    for (const bool of_channels : {false, true}) {
      SCOPED_TRACE(str("D=", channels, of_channels ? " gk" : " g"));
      LongSequence inputs(kTokens, channels, channels);
      Decays decays;
      (of_channels ? decays.gk : decays.g) = inputs.random.log_decays(
          of_channels ? Extents{1, kTokens, kHeads, channels} : Extents{1, kTokens, kHeads});
      const auto gradients = [&](const LongSequence& of, const Decays& with, const char* platform,
                                 std::string_view config) {
        RecurrentAttentionOptions options{.g = view_of(with.g)};
        options.gk = view_of(with.gk);
        options.initial_state = of.initial_state;
        options.reverse = GetParam();
        options.call = call(platform, config);
        return ops::recurrent_attention_backward(
            backwards(of.q), repeated(of.k), backwards(of.v),
            {.d_o = repeated(of.d_o), .dfinal_state = of.dfinal_state}, options);
      };
      const auto expected = gradients(inputs, decays, "reference", "");
      const auto actual = gradients(inputs.on(*gpu_), decays.on(*gpu_), "cuda",
                                    of_channels ? "kernel=cuda.gla.backward,segments=1"
                                                : "kernel=cuda.chunk_wgmma.backward,segments=1");
      expect_near(actual.dq, expected.dq, kTensorTolerance, "dq");
      expect_near(actual.dk, expected.dk, kTensorTolerance, "dk");
      expect_near(actual.dv, expected.dv, kTensorTolerance, "dv");
      expect_near(*actual.dinitial_state, *expected.dinitial_state, kTensorTolerance, "dh0");
      if (of_channels) expect_near(*actual.dgk, *expected.dgk, kGateTolerance, "dgk");
      if (!of_channels) expect_near(*actual.dg, *expected.dg, kGateTolerance, "dg");
    }
  }
}

// Channels from one that forgets nothing in all these tokens to one that forgets each.
TEST_P(ChunkBackward, GradientsOfEachChannelsDecayHoldOver65536Tokens) {
  constexpr std::int64_t kTokens = 65536;
  LongSequence inputs(kTokens);
  for (const Sides sides : kAllSides) {
    SCOPED_TRACE(name_of(sides));
    Decays decays;
    set_gates(decays, sides, [&] {
      Tensor gate = inputs.random({1, kTokens, kHeads, kChannels});
      const auto gates = gate.values<float>();
      for (std::size_t i = 0; i < gates.size(); ++i) {
        const auto channel = static_cast<float>(i % kChannels);
        gates[i] = -std::abs(gates[i]) * std::pow(10.0F, -6.0F * channel / kChannels);
      }
      return gate;
    });
    expect_near_oracle(inputs, decays);
  }
}

INSTANTIATE_TEST_SUITE_P(Directions, ChunkBackward, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& test) {
                           return std::string(test.param ? "AgainstTime" : "WithTime");
                         });

}  // namespace
}  // namespace attune::test
