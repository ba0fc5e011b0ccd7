// lightning_attention and gated_linear_attention: what they add to recurrent_attention's rules.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/ops/gated_linear_attention.hpp>
#include <attune/ops/lightning_attention.hpp>

#include "ops/attention_calls.hpp"
#include "ops/bad_call.hpp"

namespace attune::test {
namespace {

using ops::ConstantDecay;
using ops::gamma_of;
using ops::minimax_slopes;
using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;

/// By slopes.
struct LightningCall {
  AttentionCall inputs;
  Memory& memory = inputs.memory;
  ops::LightningAttentionOptions options{.slopes = memory.f32({kH})};
  ops::RecurrentAttentionOutputs out{.o = memory.f32({kB, kT, kH, kV})};

  void by_layer(std::int64_t layer, std::int64_t layers) {
    options.slopes = std::nullopt;
    options.layer_idx = layer;
    options.num_layers = layers;
  }
  void run() { ops::lightning_attention_into(out, inputs.q, inputs.k, inputs.v, options); }
  ops::RecurrentAttentionArgs args() {
    return ops::lightning_attention_args(out, inputs.q, inputs.k, inputs.v, options);
  }
};

class BadLightningCall : public testing::TestWithParam<BadCall<LightningCall>> {};

TEST_P(BadLightningCall, IsRefusedBeforeAKernelRuns) {
  expect_refused(GetParam(), "lightning_attention");
}

const BadCall<LightningCall> kBadLightningCalls[] = {
    {"NoDecay", [](LightningCall& c) { c.options.slopes = std::nullopt; },
     "slopes: no decay given, expected one of slopes, g_gamma, or layer_idx and num_layers"},
    {"SlopesAndGamma", [](LightningCall& c) { c.options.g_gamma = c.memory.f32({kH}); },
     "g_gamma: given together with slopes"},
    {"SlopesAndLayer", [](LightningCall& c) { c.options.layer_idx = 0, c.options.num_layers = 2; },
     "slopes: given together with layer_idx and num_layers"},
    {"GammaAndLayer",
     [](LightningCall& c) {
       c.by_layer(0, 2);
       c.options.g_gamma = c.memory.f32({kH});
     },
     "g_gamma: given together with layer_idx and num_layers"},
    {"LayerWithoutLayers",
     [](LightningCall& c) {
       c.by_layer(0, 2);
       c.options.num_layers = std::nullopt;
     },
     "num_layers: not given, expected with layer_idx"},
    {"LayersWithoutLayer",
     [](LightningCall& c) {
       c.by_layer(0, 2);
       c.options.layer_idx = std::nullopt;
     },
     "layer_idx: not given, expected with num_layers"},
    {"NoLayers", [](LightningCall& c) { c.by_layer(0, 0); },
     "num_layers: got 0, expected at least 1"},
    {"NegativeLayer", [](LightningCall& c) { c.by_layer(-1, 4); },
     "layer_idx: got -1, expected 0 .. 4"},
    {"LayerBeyondTheLast", [](LightningCall& c) { c.by_layer(5, 4); },
     "layer_idx: got 5, expected 0 .. 4"},
    {"SlopesOfSequences",
     [](LightningCall& c) {
       c.options.slopes = c.memory.f32({kB, kH});
     },
     "slopes: shape [2, 4], expected [4]"},
    {"SlopesIn16Bits",
     [](LightningCall& c) { c.options.slopes = c.memory.zeros(DType::kF16, {kH}); },
     "slopes: dtype f16, expected f32"},
    {"OIsQ",
     [](LightningCall& c) {
       c.inputs.v = c.memory.f32({kB, kT, kHkv, kK}), c.out.o = c.inputs.q;
     },
     "o: overlaps q"},
};

INSTANTIATE_TEST_SUITE_P(Each, BadLightningCall, testing::ValuesIn(kBadLightningCalls),
                         bad_call_name<LightningCall>);

TEST(LightningCall, SelectsUnderItsOwnName) {
  SpyContext spies;
  LightningCall call;
  call.options.call.context = &spies.context();
  call.run();
  EXPECT_EQ(spies.spy.runs, 1);
  EXPECT_EQ(spies.spy.called_as, "lightning_attention");
  EXPECT_THAT(spies.spy.problem, HasSubstr("gate=gamma"));
}

TEST(LightningCall, MayEndAtTheLastLayerWhereNothingDecays) {
  LightningCall call;
  call.by_layer(4, 4);
  const ConstantDecay decay = call.args().gamma;
  EXPECT_EQ(decay.source, ConstantDecay::Source::kLayer);
  EXPECT_EQ(gamma_of(decay, 0, 3, kH), 0);
}

TEST(LightningCall, DecaysByLayerAsThePaperHasIt) {
  LightningCall call;
  call.by_layer(1, 4);
  const ConstantDecay decay = call.args().gamma;
  EXPECT_EQ(gamma_of(decay, 0, 0, kH), 0);
  EXPECT_DOUBLE_EQ(gamma_of(decay, 1, 3, kH), -(8.0 / 4) * 0.75 * 3);
}

TEST(LightningCall, DecaysByMinusTheSlopes) {
  LightningCall call;
  call.options.slopes = call.memory.of(std::vector<float>{0.5F, 0.25F, 0.125F, 0});
  const ConstantDecay decay = call.args().gamma;
  EXPECT_EQ(gamma_of(decay, 1, 0, kH), -0.5);
  EXPECT_EQ(gamma_of(decay, 0, 2, kH), -0.125);
}

TEST(LightningBackwardCall, NamesTheGradientAfterTheSource) {
  SpyContext spies;
  LightningCall call;
  call.options.call.context = &spies.context();
  const auto gradients = [&] {
    return ops::lightning_attention_backward(call.inputs.q, call.inputs.k, call.inputs.v,
                                             {.d_o = call.out.o}, call.options);
  };
  EXPECT_EQ(gradients().dslopes->shape(), (Extents{kH}));
  EXPECT_FALSE(gradients().dg_gamma.has_value());
  call.by_layer(0, 2);
  EXPECT_FALSE(gradients().dslopes.has_value());
  EXPECT_FALSE(gradients().dg_gamma.has_value());
  call.options = {.g_gamma = call.memory.f32({kB, kH}), .call = call.options.call};
  EXPECT_EQ(gradients().dg_gamma->shape(), (Extents{kB, kH}));
  EXPECT_EQ(spies.spy.called_as, "lightning_attention.backward");
}

TEST(LightningBackwardCall, RefusesTheGradientOfASourceThatIsNotGiven) {
  LightningCall call;
  const AttentionCall& in = call.inputs;
  ops::LightningAttentionGradientOutputs out{.dq = call.memory.f32(in.q.shape),
                                             .dk = call.memory.f32(in.k.shape),
                                             .dv = call.memory.f32(in.v.shape),
                                             .dg_gamma = call.memory.f32({kH})};
  try {
    ops::lightning_attention_backward_into(out, in.q, in.k, in.v, {.d_o = call.out.o},
                                           call.options);
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "lightning_attention.backward: dg_gamma: given without g_gamma");
  }
}

TEST(MinimaxSlopes, AreGeometricForAPowerOfTwo) {
  const auto first = [](double slope) { return FloatEq(static_cast<float>(slope * (1 + 1e-5))); };
  EXPECT_THAT(minimax_slopes(4, 0, 3),
              ElementsAre(first(0.25), first(0.0625), first(0x1p-6), first(0x1p-8)));
  EXPECT_FLOAT_EQ(minimax_slopes(4, 1, 3)[0], static_cast<float>(0.25 * (0.5 + 1e-5)));
  EXPECT_FLOAT_EQ(minimax_slopes(4, 2, 3)[0], static_cast<float>(0.25 * 1e-5));
}

TEST(MinimaxSlopes, InterleaveForOtherNumbersOfHeads) {
  const std::vector<float> six = minimax_slopes(6, 0, 1);
  const std::vector<float> four = minimax_slopes(4, 0, 1);
  const std::vector<float> eight = minimax_slopes(8, 0, 1);
  EXPECT_THAT(six, ElementsAre(four[0], four[1], four[2], four[3], eight[0], eight[2]));
}

TEST(MinimaxSlopes, RefuseLayersThatAreNotThere) {
  EXPECT_THROW(minimax_slopes(0, 0, 1), InvalidArgument);
  EXPECT_THROW(minimax_slopes(4, 0, 0), InvalidArgument);
  EXPECT_THROW(minimax_slopes(4, 2, 2), InvalidArgument);
  EXPECT_THROW(minimax_slopes(4, -1, 2), InvalidArgument);
}

/// Legal.
struct GatedCall {
  AttentionCall inputs;
  TensorView gk = inputs.gk();
  ops::GatedLinearAttentionOptions options;
  ops::RecurrentAttentionOutputs out{.o = inputs.memory.f32({kB, kT, kH, kV})};
  void run() { ops::gated_linear_attention_into(out, inputs.q, inputs.k, inputs.v, gk, options); }
};

class BadGatedCall : public testing::TestWithParam<BadCall<GatedCall>> {};

TEST_P(BadGatedCall, IsRefusedBeforeAKernelRuns) {
  expect_refused(GetParam(), "gated_linear_attention");
}

const BadCall<GatedCall> kBadGatedCalls[] = {
    {"GateOfHeads", [](GatedCall& c) { c.gk = c.inputs.g(); },
     "gk: shape [2, 6, 4], expected [2, 6, 4, 8]"},
    {"NullGate", [](GatedCall& c) { c.gk = null(c.gk); }, "gk: null pointer"},
    {"KOfAnotherLength", [](GatedCall& c) { c.inputs.k = c.inputs.k.slice(1, 0, 2); },
     "k: shape [2, 2, 2, 8], expected [2, 6, Hkv, 8]"},
};

INSTANTIATE_TEST_SUITE_P(Each, BadGatedCall, testing::ValuesIn(kBadGatedCalls),
                         bad_call_name<GatedCall>);

TEST(GatedCall, LowersToRecurrentAttention) {
  SpyContext spies;
  GatedCall call;
  call.options = {
      .g_gamma = call.inputs.g_gamma(), .reverse = true, .call = {.context = &spies.context()}};
  call.run();
  EXPECT_EQ(spies.spy.called_as, "gated_linear_attention");
  const std::string problem = spies.spy.problem;
  EXPECT_THAT(problem, HasSubstr("gate=gamma+gk"));
  ops::recurrent_attention_into(call.out, call.inputs.q, call.inputs.k, call.inputs.v,
                                ops::lowered(call.gk, call.options));
  EXPECT_EQ(spies.spy.problem, problem);
  EXPECT_EQ(spies.spy.runs, 2);
}

}  // namespace
}  // namespace attune::test
