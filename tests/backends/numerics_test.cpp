// What comes out where values are extreme, and that equal calls give equal results.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <attune/attune.hpp>

#include "support/each_platform.hpp"

namespace attune::test {
namespace {

using ops::recurrent_attention;
using ops::RecurrentAttentionOptions;
using ops::RecurrentAttentionResult;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

void expect_finite(const ConstTensorView& view) {
  for (const double value : values_of(view)) ASSERT_TRUE(std::isfinite(value));
}

class Numerics : public EachPlatform {};
INSTANTIATE_TEST_SUITE_P(Platforms, Numerics, cpu_platforms(), platform_name);

TEST_P(Numerics, OrthonormalKeysReadBackWhatTheyWrote) {
  std::vector<float> unit(3 * 4, 0.0F);
  for (std::size_t t = 0; t < 3; ++t) unit[t * 4 + t] = 1.0F;
  const Tensor keys = Tensor::of(unit, {1, 3, 1, 4});
  const Tensor v = RandomTensors(1)({1, 3, 1, 4});
  RecurrentAttentionOptions with = options();
  with.scale = 1.0;
  expect_equal(recurrent_attention(keys, keys, v, with).o, v);
}

TEST_P(Numerics, ScaleDefaultsToTheInverseRootOfK) {
  const auto [q, k, v] = random_inputs(2, 9, 2, 20, 8);
  RecurrentAttentionOptions with = options();
  with.scale = 1.0 / std::sqrt(20.0);
  expect_equal(recurrent_attention(q, k, v, options()).o, recurrent_attention(q, k, v, with).o);
}

TEST_P(Numerics, ADecayOfMinusInfinityForgetsEverythingBeforeIt) {
  constexpr std::int64_t kTokens = 23;
  constexpr std::int64_t kReset = 10;
  RandomTensors random(7);
  const auto [q, k, v] = random_inputs(8, kTokens, 2, 18, 20);
  for (const std::string gate : {"g", "gk", "gv"}) {
    SCOPED_TRACE(gate);
    const Extents shape = gate == "g"    ? Extents{1, kTokens, 2}
                          : gate == "gk" ? Extents{1, kTokens, 2, 18}
                                         : Extents{1, kTokens, 2, 20};
    Tensor decays = random.log_decays(shape);
    const auto per_token = decays.values<float>().size() / kTokens;
    for (float& value : decays.values<float>().subspan(kReset * per_token, per_token)) {
      value = kMinusInfinity;
    }
    RecurrentAttentionOptions with = options();
    (gate == "g" ? with.g : gate == "gk" ? with.gk : with.gv) = decays;
    const RecurrentAttentionResult one = recurrent_attention(q, k, v, with);

    const Tensor history = random({1, 2, 18, 20});
    Tensor other_v = copy_of(v);
    for (float& value : other_v.values<float>().first(kReset * 2 * 20)) value *= -3.0F;
    with.initial_state = history;
    const RecurrentAttentionResult other = recurrent_attention(q, k, other_v, with);
    expect_finite(one.o);
    expect_equal(tokens(one.o, kReset, kTokens), tokens(other.o, kReset, kTokens));
    expect_equal(*one.final_state, *other.final_state);
  }
}

TEST_P(Numerics, StrongDecaysMakeNoNan) {
  const auto [q, k, v] = random_inputs(9, 70, 2, 16, 16);
  for (const float decay : {-60.0F, -1000.0F, kMinusInfinity}) {
    SCOPED_TRACE(decay);
    const Tensor g = Tensor::of(std::vector<float>(70 * 2, decay), {1, 70, 2});
    const Tensor gk = Tensor::of(std::vector<float>(70 * 2 * 16, decay), {1, 70, 2, 16});
    const Tensor gamma = Tensor::of(std::vector<float>(2, decay), {2});
    RecurrentAttentionOptions with = options();
    with.g = g;
    with.gk = gk;
    with.gv = gk;
    with.g_gamma = gamma;
    const RecurrentAttentionResult result = recurrent_attention(q, k, v, with);
    expect_finite(result.o);
    with.call.platform = "reference";
    const RecurrentAttentionResult expected = recurrent_attention(q, k, v, with);
    expect_near(result.o, expected.o);
    expect_near(*result.final_state, *expected.final_state);
  }
}

TEST_P(Numerics, GatesOfBothSidesCancelWhereTheirExponentialsOverflow) {
  constexpr std::int64_t kTokens = 37;
  const auto [q, k, v] = random_inputs(11, kTokens, 2, 18, 20);
  RandomTensors random(12);
  const Tensor state = random({1, 2, 18, 20}), d_o = random({1, kTokens, 2, 20});
  const auto with_mean = [](const Tensor& gates, float mean) {
    Tensor moved = copy_of(gates);
    for (float& value : moved.values<float>()) value = std::round(value * 64) / 64 + mean;
    return moved;
  };
  const Tensor gk = random.log_decays({1, kTokens, 2, 18});
  const Tensor gv = random.log_decays({1, kTokens, 2, 20});
  const auto expect_same = [](const char* name, const Tensor& far, const Tensor& near) {
    SCOPED_TRACE(name);
    expect_near(far, near, 1e-4);
  };
  const auto check = [&](float strong) {
    SCOPED_TRACE(strong);
    const Tensor far_gk = with_mean(gk, strong), far_gv = with_mean(gv, -strong);
    const Tensor near_gk = with_mean(gk, 0), near_gv = with_mean(gv, 0);
    RecurrentAttentionOptions with = options();
    with.initial_state = state;
    with.gk = far_gk;
    with.gv = far_gv;
    const RecurrentAttentionResult far = recurrent_attention(q, k, v, with);
    const auto far_d = ops::recurrent_attention_backward(q, k, v, {.d_o = d_o}, with);
    with.gk = near_gk;
    with.gv = near_gv;
    const RecurrentAttentionResult near = recurrent_attention(q, k, v, with);
    const auto near_d = ops::recurrent_attention_backward(q, k, v, {.d_o = d_o}, with);
    expect_same("o", far.o, near.o);
    expect_same("final_state", *far.final_state, *near.final_state);
    expect_same("dq", far_d.dq, near_d.dq);
    expect_same("dk", far_d.dk, near_d.dk);
    expect_same("dv", far_d.dv, near_d.dv);
    expect_same("dgk", *far_d.dgk, *near_d.dgk);
    expect_same("dgv", *far_d.dgv, *near_d.dgv);
  };
  check(100.0F);
  check(-100.0F);
}

TEST_P(Numerics, GatesOfBothSidesThatCancelLeaveNothingOverManyTokens) {
  constexpr std::int64_t kTokens = 2048;
  const auto [q, k, v] = random_inputs(13, kTokens, 1, 16, 16);
  const auto gates = [](float value) {
    return Tensor::of(std::vector<float>(kTokens * 16, value), {1, kTokens, 1, 16});
  };
  const Tensor gk = gates(100.1F), gv = gates(-100.1F);
  RecurrentAttentionOptions with = options();
  const RecurrentAttentionResult without_gates = recurrent_attention(q, k, v, with);
  with.gk = gk;
  with.gv = gv;
  const RecurrentAttentionResult cancelled = recurrent_attention(q, k, v, with);
  expect_near(cancelled.o, without_gates.o);
  expect_near(*cancelled.final_state, *without_gates.final_state);
}

TEST_P(Numerics, GatesOfBothSidesCancelInADecodeStep) {
  RandomTensors random(14);
  const Tensor q = random({3, 2, 18}), k = random({3, 2, 18}), v = random({3, 2, 20});
  const Tensor before = random({3, 2, 18, 20});
  const auto step = [&](float gk, float gv) {
    Tensor state = copy_of(before);
    const Tensor keys = Tensor::of(std::vector<float>(3 * 2 * 18, gk), {3, 2, 18});
    const Tensor values = Tensor::of(std::vector<float>(3 * 2 * 20, gv), {3, 2, 20});
    return std::pair(
        ops::recurrent_decode(q, k, v, state, {.gk = keys, .gv = values, .call = call()}),
        std::move(state));
  };
  const auto [near, near_state] = step(-0.25F, -0.25F);
  for (const float strong : {100.0F, -100.0F}) {
    const auto [far, far_state] = step(strong, -strong - 0.5F);
    expect_near(far, near);
    expect_near(far_state, near_state);
  }
}

TEST_P(Numerics, ANanStaysInItsHead) {
  constexpr std::int64_t kHeads = 3;
  const auto [q, k, v] = random_inputs(10, 30, kHeads, 20, 24);
  const RecurrentAttentionResult clean = recurrent_attention(q, k, v, options());
  Tensor bad_k = copy_of(k);
  bad_k.values<float>()[(4 * kHeads + 1) * 20 + 3] = std::numeric_limits<float>::quiet_NaN();
  const RecurrentAttentionResult spoilt = recurrent_attention(q, bad_k, v, options());
  for (const std::int64_t head : {0, 2}) {
    expect_equal(spoilt.o.view().slice(2, head, head + 1), clean.o.view().slice(2, head, head + 1));
    expect_equal(spoilt.final_state->view().slice(1, head, head + 1),
                 clean.final_state->view().slice(1, head, head + 1));
  }
  EXPECT_TRUE(std::isnan(values_of(spoilt.o.view().slice(2, 1, 2)).back()));
}

TEST_P(Numerics, AGateOfRankFourIsOneOfKeyChannels) {
  const auto [q, k, v] = random_inputs(15, 19, 2, 20, 12);
  const Tensor gk = RandomTensors(16).log_decays({1, 19, 2, 20});
  RecurrentAttentionOptions as_g = options();
  RecurrentAttentionOptions as_gk = options();
  as_g.g = gk;
  as_gk.gk = gk;
  expect_equal(recurrent_attention(q, k, v, as_g).o, recurrent_attention(q, k, v, as_gk).o);
}

TEST_P(Numerics, TheSpellingsOfAConstantDecayAgree) {
  constexpr std::int64_t kHeads = 4;
  const auto [q, k, v] = random_inputs(17, 80, kHeads, 16, 16);
  std::vector<float> gamma(kHeads);
  std::vector<float> slopes(kHeads);
  for (std::size_t h = 0; h < kHeads; ++h) {
    slopes[h] = static_cast<float>(8.0 / kHeads * (1.0 - 3.0 / 12.0) * static_cast<double>(h));
    gamma[h] = -slopes[h];
  }
  const Tensor gamma_tensor = Tensor::of(gamma, {kHeads});
  const Tensor slopes_tensor = Tensor::of(slopes, {kHeads});
  RecurrentAttentionOptions with = options();
  with.g_gamma = gamma_tensor;
  const RecurrentAttentionResult expected = recurrent_attention(q, k, v, with);

  const auto lightning = [&](ops::LightningAttentionOptions given) {
    given.want_final_state = true;
    given.call = call();
    const RecurrentAttentionResult result = ops::lightning_attention(q, k, v, given);
    expect_near(result.o, expected.o, 1e-6);
    expect_near(*result.final_state, *expected.final_state, 1e-6);
  };
  lightning({.g_gamma = gamma_tensor});
  lightning({.slopes = slopes_tensor});
  lightning({.layer_idx = 3, .num_layers = 12});
}

TEST_P(Numerics, LightningOfTheFirstLayerStaysFinite) {
  const auto [q, k, v] = random_inputs(18, 65, 32, 8, 8);
  const RecurrentAttentionResult result = ops::lightning_attention(
      q, k, v, {.layer_idx = 0, .num_layers = 32, .want_final_state = true, .call = call()});
  expect_finite(result.o);
  expect_finite(*result.final_state);
}

TEST_P(Numerics, GroupedHeadsAreRepeatedHeads) {
  RandomTensors random(19);
  const Tensor q = random({1, 17, 4, 20});
  const Tensor k = random({1, 17, 2, 20});
  const Tensor v = random({1, 17, 2, 12});
  const auto repeated = [](const Tensor& tensor) {
    const std::int64_t width = tensor.shape()[3];
    Tensor twice(DType::kF32, {1, 17, 4, width});
    for (std::int64_t i = 0; i < element_count(twice.shape()); ++i) {
      const std::int64_t row = i / width;  // token * 4 + head
      twice.values<float>()[static_cast<std::size_t>(i)] =
          tensor.values<float>()[static_cast<std::size_t>(row / 2 * width + i % width)];
    }
    return twice;
  };
  expect_equal(recurrent_attention(q, k, v, options()).o,
               recurrent_attention(q, repeated(k), repeated(v), options()).o);
}

TEST_P(Numerics, SixteenBitInputsAreAddedUpInSinglePrecision) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(dtype);
    const auto [q, k, v] = random_inputs(20, 300, 2, 64, 48, dtype);
    const RecurrentAttentionResult result = recurrent_attention(q, k, v, options());
    RecurrentAttentionOptions with = options();
    with.call.platform = "reference";
    const RecurrentAttentionResult expected = recurrent_attention(q, k, v, with);
    EXPECT_EQ(result.o.dtype(), dtype);
    expect_near(result.o, expected.o, kTolerance16);
    expect_near(*result.final_state, *expected.final_state);  // f32: no rounding on the way
  }
}

}  // namespace
}  // namespace attune::test
