// That a state carries everything from one call into the next, wherever and however it is stored.
#include <cstdint>

#include <gtest/gtest.h>

#include <attune/attune.hpp>

#include "support/each_platform.hpp"

namespace attune::test {
namespace {

using ops::recurrent_attention;
using ops::RecurrentAttentionOptions;
using ops::RecurrentAttentionResult;

class States : public EachPlatform {};
INSTANTIATE_TEST_SUITE_P(Platforms, States, cpu_platforms(), platform_name);

TEST_P(States, AStateCarriesOneCallIntoTheNext) {
  const auto [q, k, v] = random_inputs(3, 90, 2, 33, 40);
  const Tensor gk = RandomTensors(4).log_decays({1, 90, 2, 33});
  RecurrentAttentionOptions with = options();
  with.gk = gk;
  const RecurrentAttentionResult whole = recurrent_attention(q, k, v, with);
  for (const std::int64_t cut : {1, 37, 64, 89}) {
    with.gk = tokens(gk, 0, cut);
    with.initial_state = std::nullopt;
    const auto first =
        recurrent_attention(tokens(q, 0, cut), tokens(k, 0, cut), tokens(v, 0, cut), with);
    with.gk = tokens(gk, cut, 90);
    with.initial_state = *first.final_state;
    const auto second =
        recurrent_attention(tokens(q, cut, 90), tokens(k, cut, 90), tokens(v, cut, 90), with);
    expect_near(first.o, copy_of(tokens(whole.o, 0, cut)));
    expect_near(second.o, copy_of(tokens(whole.o, cut, 90)));
    expect_near(*second.final_state, *whole.final_state);
  }
}

TEST_P(States, PrefillThenDecodeIsOneLongRecurrence) {
  constexpr std::int64_t kPrefill = 1000;
  constexpr std::int64_t kAll = 1024;
  const auto [q, k, v] = random_inputs(5, kAll, 2, 24, 24);
  const Tensor g = RandomTensors(6).log_decays({1, kAll, 2});
  RecurrentAttentionOptions with = options();
  with.g = g;
  const RecurrentAttentionResult whole = recurrent_attention(q, k, v, with);

  with.g = tokens(g, 0, kPrefill);
  RecurrentAttentionResult prefill = recurrent_attention(
      tokens(q, 0, kPrefill), tokens(k, 0, kPrefill), tokens(v, 0, kPrefill), with);
  const ops::CallOptions decode_call{.context = &heuristic_context()};
  for (std::int64_t t = kPrefill; t < kAll; ++t) {
    // [1, 1, H, D] without its second dimension: one row.
    const auto row = [&](const Tensor& tensor) {
      const ConstTensorView one = tokens(tensor, t, t + 1);
      return ConstTensorView(one.data, one.dtype, {1, one.size(2), one.size(3)});
    };
    const ConstTensorView g_now = tokens(g, t, t + 1);
    const Tensor o = ops::recurrent_decode(
        row(q), row(k), row(v), *prefill.final_state,
        {.g = ConstTensorView(g_now.data, g_now.dtype, {1, 2}), .call = decode_call});
    expect_near(o, row(whole.o), 2 * kTolerance);
  }
  expect_near(*prefill.final_state, *whole.final_state);
}

TEST_P(States, TheStateMayBeStoredTransposed) {
  const auto [q, k, v] = random_inputs(11, 21, 2, 20, 36);
  RandomTensors random(12);
  const Tensor state = random({1, 2, 20, 36});
  Tensor by_column(DType::kF32, {1, 2, 36, 20});
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 20; ++i) {
      for (std::int64_t j = 0; j < 36; ++j) {
        by_column.values<float>()[static_cast<std::size_t>((h * 36 + j) * 20 + i)] =
            state.values<float>()[static_cast<std::size_t>((h * 20 + i) * 36 + j)];
      }
    }
  }
  RecurrentAttentionOptions with = options();
  with.initial_state = state;
  const RecurrentAttentionResult expected = recurrent_attention(q, k, v, with);

  Tensor o(DType::kF32, {1, 21, 2, 36});
  const TensorView view = by_column.view().permute({0, 1, 3, 2});
  with.initial_state = view;
  ops::recurrent_attention_into({.o = o, .final_state = view}, q, k, v, with);  // and in place
  expect_equal(o, expected.o);
  expect_equal(view, *expected.final_state);
}

TEST_P(States, TheStateMayBeUpdatedInPlace) {
  const auto [q, k, v] = random_inputs(13, 21, 2, 100, 130);
  Tensor state = RandomTensors(14)({1, 2, 100, 130});
  RecurrentAttentionOptions with = options();
  with.initial_state = state;
  const RecurrentAttentionResult expected = recurrent_attention(q, k, v, with);
  Tensor o(DType::kF32, {1, 21, 2, 130});
  ops::recurrent_attention_into({.o = o, .final_state = state}, q, k, v, with);
  expect_equal(o, expected.o);
  expect_equal(state, *expected.final_state);
}

}  // namespace
}  // namespace attune::test
