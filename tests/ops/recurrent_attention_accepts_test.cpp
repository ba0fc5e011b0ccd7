// Unusual calls of recurrent_attention that are legal, and the form in which kernels get them.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/attention_calls.hpp"
#include "ops/spy_context.hpp"

namespace attune::test {
namespace {

using ops::ConstantDecay;
using ops::Layout;
using ops::plan_recurrent_attention;
using ops::recurrent_attention_args;
using ops::RecurrentAttentionArgs;
using testing::HasSubstr;

class LegalCall : public testing::Test {
 protected:
  LegalCall() { call.options.call.context = &spies.context(); }

  RecurrentAttentionArgs args() {
    return recurrent_attention_args(call.out, call.q, call.k, call.v, call.options);
  }
  void expect_run() {
    call.run();
    EXPECT_EQ(spies.spy.runs, 1);
  }

  SpyContext spies;
  ForwardCall call;
};

TEST_F(LegalCall, RunsTheKernelOnce) {
  expect_run();
  EXPECT_EQ(spies.spy.problem,
            "B=2 T=6 H=4 Hkv=2 K=8 V=16 N=0 dtype=f32 gate=none gate_dtype=f32 h0=no ht=no "
            "reverse=no layout=bthd aligned=yes tf32=no");
  EXPECT_EQ(spies.spy.called_as, "");
}

TEST_F(LegalCall, OptionsAreGivenAsPointersAndShapesToo) {
  const std::vector<float> gates(kB * kT * kH), states(kB * kH * kK * kV);
  const ops::RecurrentAttentionOptions options{.g = {gates.data(), {kB, kT, kH}},
                                               .initial_state = {states.data(),
                                                                 DType::kF32,
                                                                 {kB, kH, kK, kV},
                                                                 {kH * kK * kV, kK * kV, kV, 1}},
                                               .call = call.options.call};
  call.options = options;
  EXPECT_EQ(options.g->shape, call.g().shape);
  expect_run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("gate=g gate_dtype=f32 h0=yes"));
}

TEST_F(LegalCall, NoTokensWithNullPointers) {
  call.q = null(call.q.slice(1, 0, 0));
  call.k = null(call.k.slice(1, 0, 0));
  call.v = null(call.v.slice(1, 0, 0));
  call.out.o = null(call.out.o.slice(1, 0, 0));
  call.options.initial_state = call.state();
  call.out.final_state = call.state();
  expect_run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("T=0"));
}

TEST_F(LegalCall, NoSequencesWithNullPointers) {
  call.q = null(call.q.slice(0, 0, 0));
  call.k = null(call.k.slice(0, 0, 0));
  call.v = null(call.v.slice(0, 0, 0));
  call.out.o = null(call.out.o.slice(0, 0, 0));
  call.out.final_state = null(call.state(0));
  expect_run();
}

TEST_F(LegalCall, SlicesOfAFusedProjection) {
  const TensorView fused = call.memory.f32({kB, kT, kH, kK + kK + kV + kV});
  call.q = fused.slice(3, 0, kK);
  call.k = fused.slice(3, kK, 2 * kK).slice(2, 0, kHkv);
  call.v = fused.slice(3, 2 * kK, 2 * kK + kV).slice(2, 0, kHkv);
  call.out.o = fused.slice(3, 2 * kK + kV, 2 * kK + 2 * kV);  // interleaved with the inputs
  expect_run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("layout=strided aligned=yes"));
}

TEST_F(LegalCall, InputsThatOverlapEachOther) {
  call.v = call.memory.f32({kB, kT, kHkv, kK});
  call.k = call.v;
  call.out.o = call.memory.f32({kB, kT, kH, kK});
  expect_run();
}

TEST_F(LegalCall, WindowsOfALongerSequence) {
  const TensorView longer = call.memory.f32({kB, 3 * kT, kH, kK});
  call.q = longer.slice(1, kT, 2 * kT);
  call.v = call.memory.f32({kB, kT, kHkv, kK});
  call.out.o = longer.slice(1, 2 * kT, 3 * kT);
  expect_run();
}

TEST_F(LegalCall, HeadsBeforeTokens) {
  call.q = call.memory.f32({kB, kH, kT, kK}).permute({0, 2, 1, 3});
  call.k = call.memory.f32({kB, kHkv, kT, kK}).permute({0, 2, 1, 3});
  call.v = call.memory.f32({kB, kHkv, kT, kV}).permute({0, 2, 1, 3});
  call.out.o = call.memory.f32({kB, kH, kT, kV}).permute({0, 2, 1, 3});
  expect_run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("layout=bhtd"));
}

TEST_F(LegalCall, MixedLayoutsAreStrided) {
  call.q = call.memory.f32({kB, kH, kT, kK}).permute({0, 2, 1, 3});
  expect_run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("layout=strided"));
}

TEST_F(LegalCall, RowsThatAreNotAligned) {
  call.q = {static_cast<float*>(call.memory.f32({kB * kT * kH * kK + 1}).data) + 1, call.q.shape};
  expect_run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("layout=bthd aligned=no"));
}

TEST_F(LegalCall, StatesStoredTransposed) {
  const TensorView states = call.memory.f32({kB, kH, kV, kK}).permute({0, 1, 3, 2});
  call.options.initial_state = states;
  call.out.final_state = states;  // in place
  expect_run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("h0=yes ht=yes"));
}

TEST_F(LegalCall, BroadcastGates) {
  call.options.g = with_strides(call.g(), {0, kH, 1});
  call.options.gk = with_strides(call.gk(), {0, 0, 0, 1});
  call.options.gv = with_strides(call.gv(), {0, 0, kV, 1});
  call.options.g_gamma = with_strides(call.g_gamma(), {0});
  expect_run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("gate=g+gamma+gk+gv"));
}

TEST_F(LegalCall, TensorsThatRunBackwards) {
  TensorView backwards = with_strides(call.q, {kT * kH * kK, -kH * kK, kK, 1});
  backwards.data = static_cast<float*>(call.q.data) + (kT - 1) * kH * kK;
  call.q = backwards;
  expect_run();
}

TEST_F(LegalCall, OneGammaForAllSequencesRepeatsOverThem) {
  call.options.g_gamma = call.g_gamma();
  const RecurrentAttentionArgs lowered = args();
  EXPECT_EQ(lowered.gamma.source, ConstantDecay::Source::kValues);
  EXPECT_EQ(lowered.gamma.values.shape, (Extents{kB, kH}));
  EXPECT_EQ(lowered.gamma.values.strides, (Extents{0, 1}));
}

TEST_F(LegalCall, PerChannelGBecomesGk) {
  const TensorView gates = call.gk();
  call.options.g = gates;
  const RecurrentAttentionArgs lowered = args();
  EXPECT_FALSE(lowered.g.has_value());
  EXPECT_EQ(lowered.gk->data, gates.data);
  expect_run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("gate=gk"));
}

TEST_F(LegalCall, ScaleDefaultsToOneOverTheRootOfK) {
  EXPECT_DOUBLE_EQ(args().scale, 1 / std::sqrt(static_cast<double>(kK)));
  call.options.scale = 0;
  EXPECT_EQ(args().scale, 0);
}

TEST_F(LegalCall, GatesOfTwoTypesAreMixed) {
  call.q = call.memory.zeros(DType::kBF16, call.q.shape);
  call.k = call.memory.zeros(DType::kBF16, call.k.shape);
  call.v = call.memory.zeros(DType::kBF16, call.v.shape);
  call.out.o = call.memory.zeros(DType::kBF16, call.out.o.shape);
  call.options.gk = call.memory.zeros(DType::kBF16, {kB, kT, kH, kK});
  call.options.call.allow_tf32 = true;  // of no meaning for 16 bits
  expect_run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("gate_dtype=io"));
  EXPECT_THAT(spies.spy.problem, HasSubstr("tf32=no"));
  call.options.g = call.g();
  call.run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("gate_dtype=mixed"));
}

class PackedCall : public LegalCall {
 protected:
  PackedCall() { call.pack(); }

  void drop_batch() {
    call.q = call.memory.f32({kT, kH, kK});
    call.k = call.memory.f32({kT, kHkv, kK});
    call.v = call.memory.f32({kT, kHkv, kV});
    call.out.o = call.memory.f32({kT, kH, kV});
  }
};

TEST_F(PackedCall, OfRank4) {
  call.options.initial_state = call.state(2);
  expect_run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("B=1 T=6 H=4 Hkv=2 K=8 V=16 N=2"));
}

TEST_F(PackedCall, OfRank3GetsItsBatchDimensionBack) {
  drop_batch();
  call.options.g = call.memory.f32({kT, kH});
  call.options.gk = call.memory.f32({kT, kH, kK});
  const RecurrentAttentionArgs lowered = args();
  EXPECT_EQ(lowered.q.shape, (Extents{1, kT, kH, kK}));
  EXPECT_EQ(lowered.o.shape, (Extents{1, kT, kH, kV}));
  EXPECT_EQ(lowered.g->shape, (Extents{1, kT, kH}));
  EXPECT_EQ(lowered.gk->shape, (Extents{1, kT, kH, kK}));
  expect_run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("layout=bthd"));
}

TEST_F(PackedCall, GOfRank3IsPerChannelOnlyBesideTensorsOfRank3) {
  call.options.g = call.memory.f32({1, kT, kH});
  EXPECT_TRUE(args().g.has_value());
  drop_batch();
  EXPECT_TRUE(args().g.has_value());
  call.options.g = call.memory.f32({kT, kH, kK});
  EXPECT_EQ(args().gk->shape, (Extents{1, kT, kH, kK}));
}

TEST_F(PackedCall, WithEmptySequencesAndAHostCopyOfAnotherType) {
  call.options.cu_seqlens = call.memory.of(std::vector<std::int32_t>{0, 0, kT, kT});
  call.options.cu_seqlens_host = call.memory.of(std::vector<std::int64_t>{0, 0, kT, kT});
  expect_run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("N=3"));
}

TEST_F(PackedCall, AllocatesAnOOfItsRank) {
  drop_batch();
  call.options.want_final_state = true;
  const auto [o, state] = ops::recurrent_attention(call.q, call.k, call.v, call.options);
  EXPECT_EQ(o.shape(), (Extents{kT, kH, kV}));
  EXPECT_EQ(state->shape(), (Extents{2, kH, kK, kV}));
}

TEST_F(LegalCall, ReturnsTheStateOnlyWhenItIsWanted) {
  const auto result = ops::recurrent_attention(call.q, call.k, call.v, call.options);
  EXPECT_EQ(result.o.shape(), (Extents{kB, kT, kH, kV}));
  EXPECT_FALSE(result.final_state.has_value());
}

TEST(LegalBackwardCall, RunsAndAllocatesAGradientOfEachInput) {
  SpyContext spies;
  BackwardCall call;
  call.options.call.context = &spies.context();
  call.run();
  const auto gradients =
      ops::recurrent_attention_backward(call.q, call.k, call.v, call.gradients, call.options);
  EXPECT_EQ(spies.spy.runs, 2);
  EXPECT_EQ(gradients.dk.shape(), call.k.shape);
  EXPECT_EQ(gradients.dg->shape(), (Extents{kB, kT, kH}));
  EXPECT_EQ(gradients.dg_gamma->shape(), (Extents{kH}));
  EXPECT_EQ(gradients.dgv->shape(), (Extents{kB, kT, kH, kV}));
  EXPECT_EQ(gradients.dinitial_state->shape(), (Extents{kB, kH, kK, kV}));
}

TEST(LegalBackwardCall, GivesAPerChannelGItsGradientInDg) {
  BackwardCall call;
  call.options.g = call.gk();
  call.options.gk = std::nullopt;
  call.out.dg = call.gk();
  call.out.dgk = std::nullopt;
  const auto args = ops::recurrent_attention_backward_args(call.out, call.q, call.k, call.v,
                                                           call.gradients, call.options);
  EXPECT_FALSE(args.dg.has_value());
  EXPECT_EQ(args.dgk->data, call.out.dg->data);
  EXPECT_EQ(args.dgamma->strides, (Extents{0, 1}));
}

TEST(LegalBackwardCall, GradientsMayBeSlicesOfOneArray) {
  SpyContext spies;
  BackwardCall call;
  call.options.call.context = &spies.context();
  const TensorView fused = call.memory.f32({kB, kT, kH, kK + kK + kV});
  call.out.dq = fused.slice(3, 0, kK);
  call.out.dk = fused.slice(3, kK, 2 * kK).slice(2, 0, kHkv);
  call.out.dv = fused.slice(3, 2 * kK, 2 * kK + kV).slice(2, 0, kHkv);
  call.run();
  EXPECT_EQ(spies.spy.runs, 1);
}

class PlannedCall : public LegalCall {
 protected:
  auto plan() { return plan_recurrent_attention(call.q, call.k, call.v, call.options); }
};

TEST_F(PlannedCall, LooksAtNoData) {
  const RecurrentAttentionArgs lowered = args();
  call.q = null(call.q);
  call.k = null(call.k);
  call.v = null(call.v);
  const auto made = plan();
  EXPECT_EQ(spies.spy.runs, 0);
  made.launch(lowered);
  EXPECT_EQ(spies.spy.runs, 1);
}

TEST_F(PlannedCall, IsMadeWithoutReadingCuSeqlens) {
  call.pack();
  call.options.cu_seqlens = null(call.memory.zeros(DType::kI64, {4}));
  EXPECT_EQ(plan().problem().N, 3);
}

TEST_F(PlannedCall, RefusesArgumentsOfAnotherProblem) {
  const auto made = plan();
  call.out.final_state = call.state();
  try {
    made.launch(args());
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "recurrent_attention: args: ht is yes, expected the plan's no");
  }
  EXPECT_EQ(spies.spy.runs, 0);
}

TEST_F(PlannedCall, RefusesTensorsOnAnotherDevice) {
  const auto made = plan();
  RecurrentAttentionArgs elsewhere = args();
  elsewhere.q.device = {"gpu", 0};
  try {
    made.launch(elsewhere);
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "recurrent_attention: the tensors are on gpu:0, the plan is for cpu:0");
  }
  EXPECT_EQ(spies.spy.runs, 0);
}

TEST_F(PlannedCall, RefusesOutputsThatLieOtherwise) {
  const auto made = plan();
  call.out.o = call.memory.f32({kB, kH, kT, kV}).permute({0, 2, 1, 3});
  EXPECT_THROW(made.launch(args()), InvalidArgument);
}

TEST_F(PlannedCall, ForAnyStridesTakesDenseTensorsToo) {
  const RecurrentAttentionArgs dense = args();
  call.q = call.memory.f32({kB, kT, kH, 2 * kK}).slice(3, 0, kK);
  const auto made = plan();
  EXPECT_EQ(made.problem().layout, Layout::kStrided);
  made.launch(dense);
  EXPECT_EQ(spies.spy.runs, 1);
}

TEST_F(PlannedCall, ChecksArgumentsThatWereMadeByHand) {
  const auto made = plan();
  RecurrentAttentionArgs lowered = args();
  lowered.o = TensorView(const_cast<void*>(lowered.q.data), DType::kF32, lowered.o.shape);
  EXPECT_THROW(made.launch(lowered), InvalidArgument);
  lowered = args();
  lowered.q = lowered.q.slice(0, 0, 1);
  EXPECT_THROW(made.launch(lowered), InvalidArgument);
  EXPECT_EQ(spies.spy.runs, 0);
}

}  // namespace
}  // namespace attune::test
