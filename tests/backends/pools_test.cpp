// State pools, snapshots and padded batches, as callers meet them: what a call on a pool computes
// is what calls for each sequence by itself do, and what it does not name it does not touch.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <attune/attune.hpp>

#include "support/each_platform.hpp"

namespace attune::test {
namespace {

using ops::recurrent_attention;
using ops::RecurrentAttentionOptions;
using ops::RecurrentAttentionResult;

constexpr std::int64_t kHeads = 2, kKeys = 20, kValues = 36;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class Pools : public EachPlatform {
 protected:
  /// Packed sequences of these lengths, and so many tokens behind them.
  void pack(const std::vector<std::int64_t>& lengths, std::int64_t padding = 0) {
    std::vector<std::int64_t> values{0};
    for (const std::int64_t length : lengths) values.push_back(values.back() + length);
    bounds = Tensor::of(values, {static_cast<std::int64_t>(values.size())});
    const std::int64_t all = values.back() + padding;
    in = random_inputs(31, all, kHeads, kKeys, kValues);
    gk = RandomTensors(32).log_decays({1, all, kHeads, kKeys});
    for (std::int64_t t = values.back(); t < all; ++t) {
      for (Tensor* const tensor : {&in.q, &in.k, &in.v, &gk}) {
        const ConstTensorView row = tokens(*tensor, t, t + 1);
        std::fill_n(static_cast<float*>(const_cast<void*>(row.data)), row.stride(1), kNaN);
      }
    }
    with = options();
    with.want_final_state = false;
    with.gk = gk;
    with.cu_seqlens = bounds;
  }

  static Tensor slots(const std::vector<std::int32_t>& values) {
    return Tensor::of(values, {static_cast<std::int64_t>(values.size())});
  }
  static ConstTensorView state(const Tensor& pool, std::int64_t slot) {
    return pool.view().slice(0, slot, slot + 1);
  }
  /// Tokens [begin, end) of all by themselves.
  RecurrentAttentionResult alone(std::int64_t begin, std::int64_t end,
                                 const OptionalConstTensorView& start) {
    RecurrentAttentionOptions plain = options();
    const ConstTensorView gates = tokens(gk, begin, end);
    plain.gk = gates;
    plain.initial_state = start;
    return recurrent_attention(tokens(in.q, begin, end), tokens(in.k, begin, end),
                               tokens(in.v, begin, end), plain);
  }

  Inputs in;
  Tensor gk, bounds;
  RecurrentAttentionOptions with;
};
INSTANTIATE_TEST_SUITE_P(Platforms, Pools, cpu_platforms(), platform_name);

TEST_P(Pools, HoldTheStatesThatSequencesStartFromAndEndIn) {
  pack({70, 1, 0, 33});
  Tensor pool = RandomTensors(33)({9, kHeads, kKeys, kValues});
  const Tensor before = copy_of(pool);
  // In place; from zero; a copy on write of an empty sequence; from a prefix, and not kept.
  const Tensor from = slots({4, -1, 7, 2}), to = slots({4, 0, 8, -1});
  with.states = pool.view();
  with.initial_slots = from;
  with.final_slots = to;
  const RecurrentAttentionResult result = recurrent_attention(in.q, in.k, in.v, with);
  EXPECT_FALSE(result.final_state.has_value());

  const auto first = alone(0, 70, state(before, 4));
  expect_near(tokens(result.o, 0, 70), first.o);
  expect_near(state(pool, 4), *first.final_state);
  const auto second = alone(70, 71, {});
  expect_near(tokens(result.o, 70, 71), second.o);
  expect_near(state(pool, 0), *second.final_state);
  expect_equal(state(pool, 8), state(before, 7));
  expect_near(tokens(result.o, 71, 104), alone(71, 104, state(before, 2)).o);
  for (const std::int64_t untouched : {1, 2, 3, 5, 6, 7}) {
    expect_equal(state(pool, untouched), state(before, untouched));
  }
}

TEST_P(Pools, KeepNaNsOfSlotsThatNobodyReads) {
  pack({70, 20});
  Tensor pool(DType::kF32, {4, kHeads, kKeys, kValues});
  std::ranges::fill(pool.values<float>(), kNaN);
  const Tensor from = slots({-1, -1}), to = slots({3, 1});
  with.states = pool.view();
  with.initial_slots = from;
  with.final_slots = to;
  const RecurrentAttentionResult result = recurrent_attention(in.q, in.k, in.v, with);
  expect_near(tokens(result.o, 0, 70), alone(0, 70, {}).o);
  expect_near(state(pool, 1), *alone(70, 90, {}).final_state);
  for (const double value : to_doubles(state(pool, 2))) EXPECT_TRUE(std::isnan(value));
}

TEST_P(Pools, WorkOnBatchesOfEqualLengths) {
  const auto [q, k, v] = random_inputs(41, 40, kHeads, kKeys, kValues);
  Tensor pool = RandomTensors(42)({2, kHeads, kKeys, kValues});
  const Tensor before = copy_of(pool);
  const Tensor to = slots({1});
  RecurrentAttentionOptions plain = options();
  plain.initial_state = state(before, 1);
  const auto expected = recurrent_attention(q, k, v, plain);
  RecurrentAttentionOptions pooled{.states = pool.view(), .final_slots = to, .call = call()};
  expect_equal(recurrent_attention(q, k, v, pooled).o, expected.o);
  expect_equal(state(pool, 1), *expected.final_state);
  expect_equal(state(pool, 0), state(before, 0));
}

TEST_P(Pools, KeepSnapshotsOnTheWay) {
  pack({200, 64, 63, 320});
  Tensor pool = RandomTensors(34)({16, kHeads, kKeys, kValues});
  const Tensor before = copy_of(pool);
  const Tensor to = slots({0, 1, 2, -1});
  // Of the second, the last token's state is a snapshot; of the fourth, some are not kept.
  const Tensor kept = Tensor::of(std::vector<std::int32_t>{4,  5,  6,  -1, -1, 7,  -1, -1, -1, -1,
                                                           -1, -1, -1, -1, -1, -1, 8,  -1, -1, 9},
                                 {4, 5});
  with.states = pool.view();
  with.final_slots = to;
  with.snapshot_every = 64;
  with.snapshot_slots = kept;
  const RecurrentAttentionResult result = recurrent_attention(in.q, in.k, in.v, with);
  expect_near(tokens(result.o, 0, 200), alone(0, 200, state(before, 0)).o);
  expect_near(state(pool, 0), *alone(0, 200, state(before, 0)).final_state);
  expect_near(state(pool, 4), *alone(0, 64, state(before, 0)).final_state);
  expect_near(state(pool, 5), *alone(0, 128, state(before, 0)).final_state);
  expect_near(state(pool, 6), *alone(0, 192, state(before, 0)).final_state);
  expect_near(state(pool, 7), *alone(200, 264, state(before, 1)).final_state);
  expect_equal(state(pool, 7), state(pool, 1));
  expect_near(tokens(result.o, 327, 647), alone(327, 647, {}).o);
  expect_near(state(pool, 8), *alone(327, 327 + 128, {}).final_state);
  expect_near(state(pool, 9), *alone(327, 647, {}).final_state);
  for (const std::int64_t untouched : {3, 10, 11, 12, 13, 14, 15}) {
    expect_equal(state(pool, untouched), state(before, untouched));
  }
}

TEST_P(Pools, LeaveAPaddedBatchsRowsUnreadAndWriteZeros) {
  pack({70, 5}, 29);
  const auto first = recurrent_attention(in.q, in.k, in.v, with);
  expect_near(tokens(first.o, 0, 70), alone(0, 70, {}).o);
  expect_near(tokens(first.o, 70, 75), alone(70, 75, {}).o);
  for (const double value : values_of(tokens(first.o, 75, 104))) EXPECT_EQ(value, 0.0);
}

TEST_P(Pools, LeaveTheGradientsOfAPaddedBatchsRowsZero) {
  pack({70, 5}, 29);
  const Tensor d_o = RandomTensors(36)({1, 104, kHeads, kValues});
  const Tensor g = RandomTensors(37).log_decays({1, 104, kHeads});
  const Tensor gv = RandomTensors(38).log_decays({1, 104, kHeads, kValues});
  with.g = g;
  with.gv = gv;
  const auto all = recurrent_attention_backward(in.q, in.k, in.v, {.d_o = d_o}, with);
  for (const Tensor* const gradient : {&all.dq, &all.dk, &all.dv, &*all.dg, &*all.dgk, &*all.dgv}) {
    for (const double value : values_of(tokens(*gradient, 75, 104))) EXPECT_EQ(value, 0.0);
  }
  const ConstTensorView gates = tokens(gk, 0, 75);
  const ConstTensorView shared = tokens(g, 0, 75), of_values = tokens(gv, 0, 75);
  with.gk = gates;
  with.g = shared;
  with.gv = of_values;
  const auto whole =
      recurrent_attention_backward(tokens(in.q, 0, 75), tokens(in.k, 0, 75), tokens(in.v, 0, 75),
                                   {.d_o = tokens(d_o, 0, 75)}, with);
  expect_near(tokens(all.dq, 0, 75), whole.dq);
  expect_near(tokens(all.dv, 0, 75), whole.dv);
  expect_near(tokens(*all.dgk, 0, 75), *whole.dgk, 1e-4);
}

}  // namespace
}  // namespace attune::test
