// The baseline of `attune bench --suite cpu` computes what it stands for.
#include "suites/naive_loop.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include <attune/core/params.hpp>
#include <attune/ops/recurrent_attention.hpp>

#include "support/heuristic_context.hpp"

namespace attune::cli {
namespace {

constexpr std::int64_t B = 2, T = 5, H = 3, K = 20, V = 37;  // no vector width divides V

/// The largest difference relative to the largest value.
double difference(const float* x, const Tensor& expected) {
  const std::vector<double> values = to_doubles(expected);
  double most = 0, largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(x[i]) - values[i]));
    largest = std::max(largest, std::abs(values[i]));
  }
  return most / largest;
}

TEST(NaiveLoop, AgreesWithTheReference) {
  Context& context = test::heuristic_context();
  const NaiveLoop loop(
      parse_params(str("B=", B, " T=", T, " H=", H, " K=", K, " V=", V, " h0=yes ht=yes"), ' '));
  loop.work(2)();

  const yardsticks::NaiveRecurrentArgs args = loop.args_of(0);
  const auto on_host = [](const float* data, const Extents& shape) {
    return ConstTensorView(data, DType::kF32, shape);
  };
  Tensor gk(DType::kF32, {B, T, H, K});
  for (std::size_t i = 0; i < gk.values<float>().size(); ++i) {
    gk.values<float>()[i] = std::log(args.decay[i]);
  }
  const auto [o, state] = ops::recurrent_attention(
      on_host(args.q, {B, T, H, K}), on_host(args.k, {B, T, H, K}), on_host(args.v, {B, T, H, V}),
      {.gk = gk,
       .initial_state = on_host(args.initial_state, {B, H, K, V}),
       .scale = args.scale,
       .want_final_state = true,
       .call = {.platform = "reference", .context = &context}});
  EXPECT_LT(difference(args.o, o), 1e-5);
  EXPECT_LT(difference(args.state, *state), 1e-5);
}

TEST(NaiveLoop, IsTheSameInEveryInstructionSet) {
  const NaiveLoop loop(parse_params("B=1 H=2 K=20 V=37", ' '));
  yardsticks::NaiveRecurrentArgs args = loop.args_of(0);
  const std::vector<float> before(args.state, args.state + 2 * 20 * 37);
  std::vector<float> expected;
  for (const yardsticks::Loops& loops : yardsticks::loops_of_this_cpu()) {
    std::vector<float> state = before;
    args.state = state.data();
    loops.naive_recurrent(args, 0, 2);
    if (expected.empty()) expected = state;
    for (std::size_t i = 0; i < state.size(); ++i) EXPECT_NEAR(state[i], expected[i], 1e-5);
  }
}

}  // namespace
}  // namespace attune::cli
