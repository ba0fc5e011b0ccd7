// The decode oracle: one step of the recurrence a row, on a pool of states.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/ops/recurrent_decode_op.hpp>

#include "support/recurrent_tensors.hpp"
#include "support/reference_kernels.hpp"
#include "support/rounding.hpp"

namespace attune::test {
namespace {

using ops::RecurrentDecode;
using testing::Each;

/// Rows of a decode step as a batch of one-token sequences: sequence b has the state of slot b of
/// the pool.
struct DecodeStep {
  DecodeStep(DType dtype, ops::Layout layout, std::uint64_t seed)
      : tensors({.B = 3,
                 .T = 1,
                 .H = 4,
                 .Hkv = 2,
                 .K = 3,
                 .V = 5,
                 .dtype = dtype,
                 .gates = ops::kGateG | ops::kGateGk | ops::kGateGv,
                 .h0 = true,
                 .layout = layout},
                seed) {
    const auto& from = tensors.forward;
    problem = {.B = 3, .H = 4, .Hkv = 2, .K = 3, .V = 5, .S = 3, .dtype = dtype};
    args.q = without_time(from.q);
    args.k = without_time(from.k);
    args.v = without_time(from.v);
    args.g = without_time(*from.g);
    args.gk = without_time(*from.gk);
    args.gv = without_time(*from.gv);
    args.gamma = {.source = ops::ConstantDecay::Source::kSlopes,
                  .values = ConstTensorView(slopes.data(), {1, 4})};
    args.scale = from.scale;
    args.o = without_time(from.o);
    const ConstTensorView& pool = *from.initial_state;
    args.state = TensorView(const_cast<void*>(pool.data), pool.dtype, pool.shape, pool.strides);
    args.slot_indices = ConstTensorView(slots.data(), {3});
  }

  template <class View>
  static View without_time(View view) {
    Extents shape, strides;
    if (view.rank() == 4) {
      shape = {view.size(0), view.size(2), view.size(3)};
      strides = {view.stride(0), view.stride(2), view.stride(3)};
    } else {
      shape = {view.size(0), view.size(2)};
      strides = {view.stride(0), view.stride(2)};
    }
    return View(view.data, view.dtype, shape, strides);
  }

  /// What row b reads and leaves behind, were it to use slot `slots[b]`.
  DoubleOutputs expected() const {
    DoubleRecurrence in = tensors.as_doubles();
    const std::vector<double> pool = in.initial_state;
    const std::size_t size = pool.size() / 3;
    for (std::size_t b = 0; b < 3; ++b) {
      for (std::size_t h = 0; h < 4; ++h) in.gamma.push_back(-static_cast<double>(slopes[h]));
      if (slots[b] < 0) continue;
      const auto slot = static_cast<std::size_t>(slots[b]);
      for (std::size_t e = 0; e < size; ++e) in.initial_state[b * size + e] = pool[slot * size + e];
    }
    return run(in);
  }

  std::vector<double> state_of_slot(std::int64_t slot) const {
    return to_doubles(args.state.slice(0, slot, slot + 1));
  }

  std::vector<float> slopes{0.0F, 0.25F, 0.5F, 1.0F};
  std::vector<std::int64_t> slots{2, 0, 1};
  RecurrentTensors tensors;
  RecurrentDecode::Problem problem;
  RecurrentDecode::Args args;
};

void expect_rounded_once(DType dtype, const std::vector<double>& actual,
                         const std::vector<double>& exact, std::size_t first) {
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], exact[first + i], half_ulp(dtype, exact[first + i])) << "at " << i;
  }
}

class ReferenceDecode : public testing::TestWithParam<std::tuple<DType, ops::Layout>> {};

TEST_P(ReferenceDecode, IsOneStepOfTheRecurrenceInTheRowsSlot) {
  const auto [dtype, layout] = GetParam();
  DecodeStep step(dtype, layout, 1);
  const DoubleOutputs expected = step.expected();
  run_reference<RecurrentDecode>(step.problem, step.args);
  expect_rounded_once(dtype, to_doubles(step.args.o), expected.o, 0);
  const std::size_t size = expected.final_state.size() / 3;
  for (std::size_t b = 0; b < 3; ++b) {
    expect_rounded_once(DType::kF32, step.state_of_slot(step.slots[b]), expected.final_state,
                        b * size);
  }
}
INSTANTIATE_TEST_SUITE_P(TypesAndLayouts, ReferenceDecode,
                         testing::Combine(testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                                          testing::Values(ops::Layout::kBthd,
                                                          ops::Layout::kStrided)));

TEST(ReferenceDecodeStep, APaddingRowIsZeroAndTouchesNoState) {
  DecodeStep step(DType::kF32, ops::Layout::kBthd, 2);
  step.slots = {2, -1, 0};
  step.args.slot_indices = ConstTensorView(step.slots.data(), {3});
  const auto untouched = step.state_of_slot(1);
  const auto used = step.state_of_slot(0);
  run_reference<RecurrentDecode>(step.problem, step.args);
  EXPECT_THAT(to_doubles(step.args.o.slice(0, 1, 2)), Each(0.0));
  EXPECT_EQ(step.state_of_slot(1), untouched);
  EXPECT_NE(step.state_of_slot(0), used);
}

TEST(ReferenceDecodeStep, WithoutIndicesRowBUsesSlotB) {
  DecodeStep implied(DType::kF32, ops::Layout::kBthd, 3), named(DType::kF32, ops::Layout::kBthd, 3);
  implied.problem.slots = false;
  implied.args.slot_indices.reset();
  const std::vector<std::int32_t> in_order{0, -7, 1, -7, 2, -7};  // every second one is an index
  named.args.slot_indices = ConstTensorView(in_order.data(), DType::kI32, Extents{3}, Extents{2});
  run_reference<RecurrentDecode>(implied.problem, implied.args);
  run_reference<RecurrentDecode>(named.problem, named.args);
  EXPECT_EQ(to_doubles(implied.args.o), to_doubles(named.args.o));
  EXPECT_EQ(to_doubles(implied.args.state), to_doubles(named.args.state));
}

TEST(ReferenceDecodeStep, RefusesASlotOutsideThePoolBeforeItTouchesAnyState) {
  DecodeStep step(DType::kF32, ops::Layout::kBthd, 4);
  step.slots = {0, 1, 3};
  step.args.slot_indices = ConstTensorView(step.slots.data(), {3});
  const auto before = to_doubles(step.args.state);
  try {
    run_reference<RecurrentDecode>(step.problem, step.args);
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "recurrent_decode: slot_indices[2] is 3, expected less than 3");
  }
  EXPECT_EQ(to_doubles(step.args.state), before);
}

template <class T>
T one_product_rounded(double product) {
  const T one(1.0F);
  T o(0.0F);
  float state = 0.0F;
  RecurrentDecode::Args args;
  args.q = args.k = args.v = ConstTensorView(&one, {1, 1, 1});
  args.scale = product;
  args.state = TensorView(&state, {1, 1, 1, 1});
  args.o = TensorView(&o, {1, 1, 1});
  run_reference<RecurrentDecode>(
      {.B = 1, .H = 1, .Hkv = 1, .K = 1, .V = 1, .S = 1, .dtype = kDTypeOf<T>, .slots = false},
      args);
  return o;
}

TEST(ReferenceRounding, RoundsToSixteenBitsOnceNotByWayOfFloat) {
  // A hair above, at and below the middle between 1 and its neighbour. As a float all three are the
  // middle.
  for (const double hair : {0x1p-40, 0.0, -0x1p-40}) {
    const float bf16_up = hair > 0 ? 1.0F + 0x1p-7F : 1.0F;
    const float f16_up = hair > 0 ? 1.0F + 0x1p-10F : 1.0F;
    EXPECT_EQ(static_cast<float>(one_product_rounded<bf16>(1 + 0x1p-8 + hair)), bf16_up);
    EXPECT_EQ(static_cast<float>(one_product_rounded<f16>(1 + 0x1p-11 + hair)), f16_up);
    EXPECT_EQ(static_cast<float>(one_product_rounded<bf16>(-1 - 0x1p-8 - hair)), -bf16_up);
  }
}

TEST(ReferenceRounding, KeepsTheEdgesOfTheRange) {
  EXPECT_EQ(static_cast<float>(one_product_rounded<f16>(65519.99)), 65504.0F);
  EXPECT_TRUE(std::isinf(static_cast<float>(one_product_rounded<f16>(65520.0))));
  EXPECT_TRUE(std::isinf(static_cast<float>(one_product_rounded<bf16>(1e39))));
  EXPECT_EQ(static_cast<float>(one_product_rounded<f16>(0x1p-24)), 0x1p-24F);
  EXPECT_EQ(static_cast<float>(one_product_rounded<f16>(1e-60)), 0.0F);
  EXPECT_TRUE(std::isnan(
      static_cast<float>(one_product_rounded<bf16>(std::numeric_limits<double>::quiet_NaN()))));
}

}  // namespace
}  // namespace attune::test
