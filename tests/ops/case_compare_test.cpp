// What passes as the expected output, and what does not.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/case_support.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttentionBackward;
using testing::StartsWith;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// o is [1, 3, 2, 4], all ones unless a test writes something else.
class Comparison : public testing::Test {
 protected:
  Comparison() { fill(*made, "o", 1); }
  OutputCheck check(float expected) {
    TensorMap map;
    map.emplace("o", filled({1, 3, 2, 4}, expected));
    return check_of(*made, map, "o");
  }
  float& element(std::int64_t i) { return static_cast<float*>(output_of(*made, "o").data)[i]; }

  std::unique_ptr<Case> made = make_case("recurrent_attention", "T=3 H=2 D=4");
};

TEST_F(Comparison, PassesEqualValues) {
  const OutputCheck equal = check(1);
  EXPECT_TRUE(equal.passed);
  EXPECT_EQ(equal.error, 0);
  EXPECT_EQ(equal.tolerance, 2e-5);
  EXPECT_EQ(equal.reason, "");
}

TEST_F(Comparison, HoldsTheRelativeRmsErrorAgainstTheTolerance) {
  EXPECT_TRUE(check(1.000019F).passed);
  EXPECT_FALSE(check(1.000022F).passed);
}

TEST_F(Comparison, FailsOnOneWrongElement) {
  element(5) = 1.01F;
  const OutputCheck wrong = check(1);
  EXPECT_FALSE(wrong.passed);
  EXPECT_NEAR(wrong.error, 0.01 / std::sqrt(24), 1e-6);
  EXPECT_THAT(wrong.reason, StartsWith("relative RMS error"));
}

TEST_F(Comparison, FailsOnANanAndSaysWhere) {
  element(23) = kNan;
  const OutputCheck wrong = check(1);
  EXPECT_FALSE(wrong.passed);
  EXPECT_EQ(wrong.reason, "NaN at [0, 2, 1, 3], expected 1");
}

TEST_F(Comparison, FailsOnANanAlsoWhenNothingIsExpected) {
  EXPECT_TRUE(check_of(*made, {}, "o").passed);
  element(8) = kNan;
  EXPECT_EQ(check_of(*made, {}, "o").reason, "NaN at [0, 1, 0, 0]");
  element(8) = -kInfinity;
  EXPECT_EQ(check_of(*made, {}, "o").reason, "-inf at [0, 1, 0, 0]");
}

TEST_F(Comparison, PassesANanOnlyWhereOneIsExpected) {
  TensorMap expected;
  Tensor tensor = filled({1, 3, 2, 4}, 1);
  tensor.values<float>()[2] = kNan;
  expected.emplace("o", std::move(tensor));
  EXPECT_EQ(check_of(*made, expected, "o").reason, "1 at [0, 0, 0, 2], expected NaN");
  element(2) = kNan;
  EXPECT_TRUE(check_of(*made, expected, "o").passed);
}

TEST_F(Comparison, IsAbsoluteWhereZeroIsExpected) {
  fill(*made, "o", 0.9e-6F);
  EXPECT_TRUE(check(0).passed);
  EXPECT_EQ(check(0).tolerance, 1e-6);
  fill(*made, "o", 1.1e-6F);
  EXPECT_FALSE(check(0).passed);
}

TEST_F(Comparison, FailsOnAnotherShape) {
  TensorMap expected;
  expected.emplace("o", filled({3, 2, 4}, 1));
  EXPECT_EQ(check_of(*made, expected, "o").reason, "shape [1, 3, 2, 4], expected [3, 2, 4]");
}

TEST(ComparisonIn16Bits, IsWiderAlsoForTheStateInF32) {
  const auto made = make_case("recurrent_attention", "T=3 H=2 D=4 dtype=bf16 ht=yes");
  made->reset(std::byte{0});
  fill(*made, "final_state", 1.004F);
  TensorMap expected;
  expected.emplace("final_state", filled({1, 2, 4, 4}, 1));
  const OutputCheck state = check_of(*made, expected, "final_state");
  EXPECT_EQ(state.tolerance, 5e-3);
  EXPECT_TRUE(state.passed);
  fill(*made, "final_state", 1.006F);
  EXPECT_FALSE(check_of(*made, expected, "final_state").passed);
}

TEST(ComparisonInTf32, IsAsWideAsIn16Bits) {
  const auto made = make_case("recurrent_attention", "T=3 H=2 D=4 tf32=yes");
  fill(*made, "o", 1.004F);
  TensorMap expected;
  expected.emplace("o", filled({1, 3, 2, 4}, 1));
  EXPECT_TRUE(check_of(*made, expected, "o").passed);
}

/// All gradients are finite; the inputs are those of the seed.
std::unique_ptr<Case> backward_case(std::string_view problem) {
  auto made = make_case("recurrent_attention.backward", problem);
  made->reset(std::byte{0});
  return made;
}

/// dq that makes q dq the same everywhere.
Tensor dq_with_product(const Case& made, double product) {
  const auto& args = args_of<RecurrentAttentionBackward>(made);
  Tensor dq(DType::kF32, args.q.shape);
  const std::vector<double> q = to_doubles(args.q);
  for (std::size_t i = 0; i < q.size(); ++i)
    dq.values<float>()[i] = static_cast<float>(product / q[i]);
  return dq;
}

TEST(GateGradientComparison, HasATenthOfTheOthersPrecision) {
  const auto made = backward_case("T=3 H=2 D=4 gate=g");
  fill(*made, "dg", 1.00009F);
  TensorMap expected;
  expected.emplace("dg", filled({1, 3, 2}, 1));
  const OutputCheck check = check_of(*made, expected, "dg");
  EXPECT_TRUE(check.passed);
  EXPECT_EQ(check.tolerance, 1e-4);
  fill(*made, "dg", 1.0002F);
  EXPECT_FALSE(check_of(*made, expected, "dg").passed);
}

/// The tolerance of a gradient that misses `1` by a percent, when q dq is 1000 everywhere.
double tolerance_of(std::string_view problem, const char* name, const Extents& shape) {
  const auto made = backward_case(problem);
  fill(*made, name, 1.01F);
  TensorMap expected;
  expected.emplace("dq", dq_with_product(*made, 1000));
  expected.emplace(name, filled(shape, 1));
  return check_of(*made, expected, name).tolerance;
}

TEST(GateGradientComparison, AllowsTheTensorToleranceOfItsSummands) {
  constexpr double kOne = 2e-5 * 1000;  // one q dq
  EXPECT_NEAR(tolerance_of("T=3 H=2 D=4 gate=gk", "dgk", {1, 3, 2, 4}), kOne, 1e-6);
  EXPECT_NEAR(tolerance_of("T=3 H=2 D=4 gate=g", "dg", {1, 3, 2}), 4 * kOne, 1e-6);
  EXPECT_NEAR(tolerance_of("T=3 H=2 D=4 gate=gamma", "dg_gamma", {2}), 3 * 4 * kOne, 1e-6);
  EXPECT_NEAR(tolerance_of("B=5 T=3 H=2 D=4 gate=gamma", "dg_gamma", {2}), 5 * 3 * 4 * kOne, 1e-5);
}

TEST(GateGradientComparison, AllowsTheTensorToleranceOfWhatIsLeftInTheFinalState) {
  const auto made = backward_case("T=3 H=1 D=1 gate=gamma ht=yes");
  const auto& args = args_of<RecurrentAttentionBackward>(*made);
  double state = 0;
  for (const std::int64_t t : {0, 1, 2}) {
    state = std::exp(element_as_double(args.gamma.values, 0)) * state +
            element_as_double(args.k, t) * element_as_double(args.v, t);
  }
  const double left = 3 * std::abs(state * element_as_double(*args.dfinal_state, 0));
  fill(*made, "dg_gamma", 1.01e-3F);
  TensorMap expected;
  expected.emplace("dq", dq_with_product(*made, 0));
  expected.emplace("dg_gamma", filled({1}, 1e-3F));
  EXPECT_NEAR(check_of(*made, expected, "dg_gamma").tolerance, 2e-5 * left / 1e-3, 1e-6);
}

TEST(GateGradientComparison, UsesTheCasesOwnDqWhenNoneIsExpected) {
  const auto made = backward_case("T=3 H=2 D=4 gate=g");
  fill(*made, "dg", 1.01F);
  TensorMap expected;
  expected.emplace("dg", filled({1, 3, 2}, 1));
  EXPECT_FALSE(check_of(*made, expected, "dg").passed);
  const Tensor dq = dq_with_product(*made, 1000);
  const TensorView own = output_of(*made, "dq");
  std::copy(dq.values<float>().begin(), dq.values<float>().end(), static_cast<float*>(own.data));
  EXPECT_TRUE(check_of(*made, expected, "dg").passed);
}

TEST(GateGradientComparison, AllowsTheSameOfOTimesDoForGv) {
  for (const bool reverse : {false, true}) {
    const auto made =
        backward_case(str("T=3 H=1 D=1 gate=gv h0=yes reverse=", reverse ? "yes" : "no"));
    const auto& args = args_of<RecurrentAttentionBackward>(*made);
    const auto at = [](const ConstTensorView& view, std::int64_t t) {
      return element_as_double(view, t);
    };
    double state = at(*args.initial_state, 0);
    double squares = 0;
    for (const std::int64_t step : {0, 1, 2}) {
      const std::int64_t t = reverse ? 2 - step : step;
      state = std::exp(at(*args.gv, t)) * state + at(args.k, t) * at(args.v, t);
      squares += std::pow(args.scale * at(args.q, t) * state * at(*args.d_o, t), 2);
    }
    fill(*made, "dgv", 1.01e-3F);
    TensorMap expected;
    expected.emplace("dgv", filled({1, 3, 1, 1}, 1e-3F));
    EXPECT_NEAR(check_of(*made, expected, "dgv").tolerance, 2e-5 * std::sqrt(squares / 3) / 1e-3,
                1e-8);
  }
}

}  // namespace
}  // namespace attune::test
