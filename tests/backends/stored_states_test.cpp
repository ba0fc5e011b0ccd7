// States of 16 bits, as callers meet them: stored so, and summed up in fp32.
#include <vector>

#include <attune/attune.hpp>

#include "support/each_platform.hpp"

namespace attune::test {
namespace {

using ops::recurrent_attention;
using ops::RecurrentAttentionOptions;

constexpr std::int64_t kHeads = 2, kKeys = 20, kValues = 36;

class StoredStates : public EachPlatform {
 protected:
  static ConstTensorView state(const Tensor& pool, std::int64_t slot) {
    return pool.view().slice(0, slot, slot + 1);
  }
  static Tensor widened(const ConstTensorView& view) {
    std::vector<float> wide;
    for (const double value : to_doubles(view)) wide.push_back(static_cast<float>(value));
    return Tensor::of(wide, view.shape);
  }
};
INSTANTIATE_TEST_SUITE_P(Platforms, StoredStates, cpu_platforms(), platform_name);

TEST_P(StoredStates, AreRoundedOnceACall) {
  const auto [q, k, v] = random_inputs(43, 200, kHeads, kKeys, kValues);
  const Tensor gk = RandomTensors(47).log_decays({1, 200, kHeads, kKeys});
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Tensor pool = RandomTensors(43)({8, kHeads, kKeys, kValues}, dtype);
    const Tensor before = copy_of(pool);
    const Tensor to = Tensor::of(std::vector<std::int32_t>{5}, {1});
    const Tensor kept = Tensor::of(std::vector<std::int32_t>{1, 2, 3}, {1, 3});
    const auto result = recurrent_attention(q, k, v,
                                            {.gk = gk,
                                             .states = pool.view(),
                                             .final_slots = to,
                                             .snapshot_every = 64,
                                             .snapshot_slots = kept,
                                             .call = call()});
    const Tensor start = widened(state(before, 5));
    const auto until = [&](std::int64_t end) {
      const ConstTensorView gates = tokens(gk, 0, end);
      RecurrentAttentionOptions plain = options();
      plain.gk = gates;
      plain.initial_state = start;
      return recurrent_attention(tokens(q, 0, end), tokens(k, 0, end), tokens(v, 0, end), plain);
    };
    // Sums go on in fp32 behind a snapshot: o is as exact as from states in fp32.
    expect_near(result.o, until(200).o);
    expect_near(state(pool, 5), *until(200).final_state, kTolerance16);
    expect_near(state(pool, 2), *until(128).final_state, kTolerance16);
    for (const std::int64_t untouched : {0, 4, 6, 7}) {
      expect_equal(state(pool, untouched), state(before, untouched));
    }
  }
}

TEST_P(StoredStates, RoundDenseStatesAsWell) {
  const auto [q, k, v] = random_inputs(44, 70, kHeads, kKeys, kValues);
  Tensor state = RandomTensors(45)({1, kHeads, kKeys, kValues}, DType::kF16);
  RecurrentAttentionOptions with_state = options();
  with_state.initial_state = state;
  const auto apart = recurrent_attention(q, k, v, with_state);
  EXPECT_EQ(apart.final_state->dtype(), DType::kF16);
  Tensor o(DType::kF32, {1, 70, kHeads, kValues});
  ops::recurrent_attention_into({.o = o, .final_state = state}, q, k, v, with_state);
  expect_equal(o, apart.o);
  expect_equal(state, *apart.final_state);
}

TEST_P(StoredStates, GiveTheSameBitsStoredByValuesFirst) {
  const auto [q, k, v] = random_inputs(52, 70, kHeads, kKeys, kValues);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Tensor stored = RandomTensors(53)({1, kHeads, kValues, kKeys}, dtype);
    const TensorView by_values = stored.view().permute({0, 1, 3, 2});
    const Tensor by_keys = copy_of(by_values);
    RecurrentAttentionOptions with_state = options();
    with_state.initial_state = by_keys;
    const auto expected = recurrent_attention(q, k, v, with_state);
    with_state.initial_state = by_values;
    Tensor o(DType::kF32, {1, 70, kHeads, kValues});
    ops::recurrent_attention_into({.o = o, .final_state = by_values}, q, k, v, with_state);
    expect_equal(o, expected.o);
    expect_equal(by_values, *expected.final_state);
  }
}

TEST_P(StoredStates, RoundAtRandomWithTheSameBitsForTheSameSeed) {
  const auto [q, k, v] = random_inputs(46, 70, kHeads, kKeys, kValues);
  const Tensor start = RandomTensors(48)({1, kHeads, kKeys, kValues}, DType::kBF16);
  const auto run = [&](StateRounding rounding) {
    RecurrentAttentionOptions with_state = options();
    with_state.initial_state = start;
    with_state.state_rounding = rounding;
    return recurrent_attention(q, k, v, with_state);
  };
  const auto nearest = run({});
  const auto once = run(stochastic(1)), again = run(stochastic(1));
  const auto other = run(stochastic(2));
  expect_equal(*once.final_state, *again.final_state);
  expect_equal(once.o, nearest.o);
  EXPECT_NE(values_of(*once.final_state), values_of(*other.final_state));
  EXPECT_NE(values_of(*once.final_state), values_of(*nearest.final_state));
  expect_near(*once.final_state, *nearest.final_state, 2 * kTolerance16);
}

// Many small changes: to nearest, none of them moves a state of 16 bits.
TEST_P(StoredStates, RoundedAtRandomTakeInWhatIsSmallAgainstThem) {
  constexpr int kSteps = 512;
  for (const bool at_random : {false, true}) {
    Tensor state = Tensor::of(std::vector<bf16>(64, bf16(1.0F)), {64, 1, 1, 1});
    std::vector<std::int32_t> all(64);
    for (std::int32_t i = 0; i < 64; ++i) all[static_cast<std::size_t>(i)] = i;
    const Tensor to = Tensor::of(all, {64});
    const Tensor q = Tensor::of(std::vector<float>(64, 1.0F), {64, 1, 1, 1});
    const Tensor v = Tensor::of(std::vector<float>(64, 1.0F / 1024), {64, 1, 1, 1});
    for (int step = 0; step < kSteps; ++step) {
      const auto seed = static_cast<std::uint64_t>(step);
      recurrent_attention(q, q, v,
                          {.states = state.view(),
                           .final_slots = to,
                           .state_rounding = at_random ? stochastic(seed) : StateRounding{},
                           .call = call()});
    }
    double mean = 0;
    for (const double value : values_of(state)) mean += value / 64;
    if (at_random) {
      EXPECT_NEAR(mean, 1.5, 0.03);
    } else {
      EXPECT_EQ(mean, 1.0);
    }
  }
}

}  // namespace
}  // namespace attune::test
