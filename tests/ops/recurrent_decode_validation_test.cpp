// Every way to call recurrent_decode and lightning_decode wrongly, and unusual calls that are
// legal.
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/bad_call.hpp"
#include "ops/decode_calls.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Indices = std::vector<std::int64_t>;

class BadDecodeCall : public testing::TestWithParam<BadCall<DecodeCall>> {};

TEST_P(BadDecodeCall, IsRefusedBeforeAKernelRuns) {
  expect_refused(GetParam(), "recurrent_decode");
}

const BadCall<DecodeCall> kBadDecodeCalls[] = {
    {"QOfRank2",
     [](DecodeCall& c) {
       c.q = c.memory.f32({kRows, kK});
     },
     "q: shape [3, 8], expected [B, T, H, K] or without T"},
    {"QWithTokensAndKWithout",
     [](DecodeCall& c) {
       c.q = c.memory.f32({kRows, 1, kH, kK});
     },
     "k: shape [3, 2, 8], expected [3, 1, Hkv, 8]"},
    {"KOfOtherRows", [](DecodeCall& c) { c.k = c.k.slice(0, 0, 2); },
     "k: shape [2, 2, 8], expected [3, Hkv, 8]"},
    {"KWithHeadsThatDoNotDivide",
     [](DecodeCall& c) {
       c.k = c.memory.f32({kRows, 3, kK});
     },
     "k: 3 heads, expected a divisor of q's 4"},
    {"VOfOtherHeads", [](DecodeCall& c) { c.v = c.v.slice(1, 0, 1); },
     "v: shape [3, 1, 16], expected [3, 2, V]"},
    {"VOfAnotherType", [](DecodeCall& c) { c.v = c.memory.zeros(DType::kBF16, c.v.shape); },
     "v: dtype bf16, expected f32 (q's)"},
    {"StateTransposed",
     [](DecodeCall& c) {
       c.state = c.state.permute({0, 1, 3, 2});
     },
     "state: shape [5, 4, 16, 8], expected [S, 4, 8, 16]"},
    {"StateOfIntegers", [](DecodeCall& c) { c.state = c.memory.zeros(DType::kI32, c.state.shape); },
     "state: dtype i32, expected f32, f16 or bf16"},
    {"StateOfOneSlotRepeated", [](DecodeCall& c) { c.state.strides[0] = 0; },
     "state: shape [5, 4, 8, 16] with strides [0, 128, 16, 1] has elements that share memory"},
    {"StateTooSmallWithoutSlots", [](DecodeCall& c) { c.state = c.state.slice(0, 0, 1); },
     "state: 1 slot, expected at least one for each of 3 rows without slot_indices"},
    {"NullState", [](DecodeCall& c) { c.state = null(c.state); }, "state: null pointer"},
    {"StateIsK",
     [](DecodeCall& c) {
       c.k = {c.state.data, DType::kF32, c.k.shape};
     },
     "state: overlaps k"},
    {"OIsTheState",
     [](DecodeCall& c) {
       c.o = {c.state.data, DType::kF32, c.o.shape};
     },
     "o: overlaps state"},
    {"OIsV",
     [](DecodeCall& c) {
       c.v = c.memory.f32({kRows, kH, kV});
       c.k = c.memory.f32({kRows, kH, kK});
       c.o = c.v;
     },
     "o: overlaps v"},
    {"OOfKeyChannels",
     [](DecodeCall& c) {
       c.o = c.memory.f32({kRows, kH, kK});
     },
     "o: shape [3, 4, 8], expected [3, 4, 16]"},
    {"GOfChannels",
     [](DecodeCall& c) {
       c.options.g = c.memory.f32({kRows, kH, kK});
     },
     "g: shape [3, 4, 8], expected [3, 4]"},
    {"GkOfValueChannels",
     [](DecodeCall& c) {
       c.options.gk = c.memory.f32({kRows, kH, kV});
     },
     "gk: shape [3, 4, 16], expected [3, 4, 8]"},
    {"GvIn16Bits",
     [](DecodeCall& c) {
       c.options.gv = c.memory.zeros(DType::kF16, {kRows, kH, kV});
     },
     "gv: dtype f16, expected f32"},
    {"GammaOfRows",
     [](DecodeCall& c) {
       c.options.g_gamma = c.memory.f32({kRows, kH});
     },
     "g_gamma: shape [3, 4], expected [4]"},
    {"SlotsOfOtherRows",
     [](DecodeCall& c) {
       c.slots(Indices{0, 1});
     },
     "slot_indices: shape [2], expected [3]"},
    {"SlotsOfFloats", [](DecodeCall& c) { c.options.slot_indices = c.memory.f32({kRows}); },
     "slot_indices: dtype f32, expected i32 or i64"},
    {"SlotBeyondThePool",
     [](DecodeCall& c) {
       c.slots(Indices{0, 5, 1});
     },
     "slot_indices: row 1 has slot 5, expected less than 5"},
    {"SlotTwice",
     [](DecodeCall& c) {
       c.slots(std::vector<std::int32_t>{4, 2, 4});
     },
     "slot_indices: slot 4 stands twice, the second time in row 2"},
    {"SlotsOnAnotherDevice",
     [](DecodeCall& c) {
       c.options.slot_indices = on_gpu(c.memory.of(Indices{0, 1, 2}));
     },
     "slot_indices: on device gpu:0, expected cpu:0 (q's)"},
    {"ScaleThatIsNoNumber", [](DecodeCall& c) { c.options.scale = std::nan(""); },
     "scale: got nan, expected a finite number"},
    {"BackendThatQIsNotOn", [](DecodeCall& c) { c.options.call.backend = "gpu"; },
     "backend: gpu asked for, but q is on cpu:0"},
};

INSTANTIATE_TEST_SUITE_P(Each, BadDecodeCall, testing::ValuesIn(kBadDecodeCalls),
                         bad_call_name<DecodeCall>);

class BadStepOfTokens : public testing::TestWithParam<BadCall<TokensCall>> {};

TEST_P(BadStepOfTokens, IsRefusedBeforeAKernelRuns) {
  expect_refused(GetParam(), "recurrent_decode");
}

const BadCall<TokensCall> kBadStepsOfTokens[] = {
    {"NoToken", [](TokensCall& c) { c.tokens(0); }, "q: shape [3, 0, 4, 8], expected T >= 1"},
    {"TooManyTokens", [](TokensCall& c) { c.tokens(17); }, "q: 17 tokens a row, expected 1 .. 16"},
    {"VOfOtherTokens", [](TokensCall& c) { c.v = c.v.slice(1, 0, 2); },
     "v: shape [3, 2, 2, 16], expected [3, 4, 2, V]"},
    {"GOfOneToken",
     [](TokensCall& c) {
       c.options.g = c.memory.f32({kRows, kH});
     },
     "g: shape [3, 4], expected [3, 4, 4]"},
    {"OOfOneToken",
     [](TokensCall& c) {
       c.o = c.memory.f32({kRows, kH, kV});
     },
     "o: shape [3, 4, 16], expected [3, 4, 4, 16]"},

    {"KeptSlotsWithoutAccepted",
     [](TokensCall& c) {
       c.keep();
       c.options.accepted = {};
     },
     "accepted: not given, expected with kept_slots"},
    {"AcceptedWithoutKeptSlots",
     [](TokensCall& c) {
       c.keep();
       c.options.kept_slots = {};
     },
     "accepted: given without kept_slots"},
    {"KeptSlotsWithSlotIndices",
     [](TokensCall& c) {
       c.keep();
       c.slots(Indices{0, 1, 2});
     },
     "kept_slots: given together with slot_indices, expected one of them"},
    {"KeptSlotsWithReplay",
     [](TokensCall& c) {
       c.keep();
       c.replay();
     },
     "kept_slots: given together with committed, expected one of them"},
    {"KeptSlotsOfOtherTokens",
     [](TokensCall& c) {
       c.keep();
       c.options.kept_slots = c.memory.zeros(DType::kI64, {kRows, 3});
     },
     "kept_slots: shape [3, 3], expected [3, 4]"},
    {"KeptSlotBeyondThePool",
     [](TokensCall& c) {
       c.keep();
       c.kept[7] = 12;
     },
     "kept_slots: row 1, token 3 has slot 12, expected less than 12"},
    {"KeptSlotTwiceInARow",
     [](TokensCall& c) {
       c.keep();
       c.kept[3] = c.kept[1];
     },
     "kept_slots: slot 1 stands twice, the second time in row 0, token 3"},
    {"KeptSlotOfTwoRows",
     [](TokensCall& c) {
       c.keep();
       c.kept[11] = c.kept[0];
     },
     "kept_slots: slot 0 stands twice, the second time in row 2, token 3"},
    {"NoneAcceptedOfKept",
     [](TokensCall& c) {
       c.keep();
       c.accepted[1] = 0;
     },
     "accepted: row 1 has 0, expected 1 .. 4, or a negative number for padding"},
    {"MoreAcceptedThanKept",
     [](TokensCall& c) {
       c.keep();
       c.accepted[2] = 5;
     },
     "accepted: row 2 has 5, expected 1 .. 4"},

    {"CommittedVOfOtherTokens",
     [](TokensCall& c) {
       c.replay();
       c.options.committed->v = c.memory.f32({kRows, 2, kHkv, kV});
     },
     "committed.v: shape [3, 2, 2, 16], expected [3, 3, 2, 16]"},
    {"CommittedKIn16Bits",
     [](TokensCall& c) {
       c.replay();
       c.options.committed->k = c.memory.zeros(DType::kF16, {kRows, 3, kHkv, kK});
     },
     "committed.k: dtype f16, expected f32 (q's)"},
    {"NoCommittedToken",
     [](TokensCall& c) {
       c.replay();
       c.options.committed->k = c.memory.f32({kRows, 0, kHkv, kK});
       c.options.committed->v = c.memory.f32({kRows, 0, kHkv, kV});
     },
     "committed.k: 0 tokens a row, expected 1 .. 16"},
    {"CommittedWithoutTheirGate",
     [](TokensCall& c) {
       c.replay();
       c.options.gk = c.memory.f32({kRows, 4, kH, kK});
     },
     "committed.gk: not given, expected with gk"},
    {"CommittedGateOfNoOther",
     [](TokensCall& c) {
       c.replay();
       c.options.committed->g = c.memory.f32({kRows, 3, kH});
     },
     "committed.g: given without g"},
    {"MoreAcceptedThanCommitted",
     [](TokensCall& c) {
       c.replay();
       c.accepted[0] = 4;
     },
     "committed.accepted: row 0 has 4, expected 0 .. 3, or a negative number for padding"},
};

INSTANTIATE_TEST_SUITE_P(Each, BadStepOfTokens, testing::ValuesIn(kBadStepsOfTokens),
                         bad_call_name<TokensCall>);

class BadLightningDecodeCall : public testing::TestWithParam<BadCall<LightningDecodeCall>> {};

TEST_P(BadLightningDecodeCall, IsRefusedBeforeAKernelRuns) {
  expect_refused(GetParam(), "lightning_decode");
}

const BadCall<LightningDecodeCall> kBadLightningDecodeCalls[] = {
    {"NoDecay", [](LightningDecodeCall& c) { c.options.slopes = std::nullopt; },
     "slopes: no decay given"},
    {"TwoDecays", [](LightningDecodeCall& c) { c.options.g_gamma = c.memory.f32({kH}); },
     "g_gamma: given together with slopes"},
    {"SlopesOfKvHeads", [](LightningDecodeCall& c) { c.options.slopes = c.memory.f32({kHkv}); },
     "slopes: shape [2], expected [4]"},
    {"SlotTwice",
     [](LightningDecodeCall& c) {
       c.slots(Indices{1, 1, 0});
     },
     "slot_indices: slot 1 stands twice"},
};

INSTANTIATE_TEST_SUITE_P(Each, BadLightningDecodeCall, testing::ValuesIn(kBadLightningDecodeCalls),
                         bad_call_name<LightningDecodeCall>);

class LegalDecodeCall : public testing::Test {
 protected:
  LegalDecodeCall() { call.options.call.context = &spies.context(); }
  void expect_run() {
    call.run();
    EXPECT_EQ(spies.spy.runs, 1);
  }
  SpyContext spies;
  DecodeCall call;
};

TEST_F(LegalDecodeCall, WithoutSlotsUsesThePoolInOrder) {
  expect_run();
  EXPECT_EQ(spies.spy.problem,
            "B=3 H=4 Hkv=2 K=8 V=16 S=5 dtype=f32 gate=none gate_dtype=f32 slots=no layout=bthd "
            "aligned=yes tf32=no");
}

TEST_F(LegalDecodeCall, PaddingMayStandAsOftenAsItLikes) {
  call.slots(Indices{-1, 4, -1});
  expect_run();
}

TEST_F(LegalDecodeCall, AllRowsMayBePaddingOfAnEmptyPool) {
  call.state = null(call.state.slice(0, 0, 0));
  call.slots(Indices{-1, -7, -1});
  expect_run();
}

TEST_F(LegalDecodeCall, SlotsMayBeAColumnOfATable) {
  TensorView column = call.memory.of(Indices{3, 3, 0, 3, 1, 3});
  column.shape = {kRows};
  column.strides = {2};
  call.options.slot_indices = column;
  expect_run();
}

TEST_F(LegalDecodeCall, FindsTheSameSlotTwiceInALargePool) {
  constexpr std::int64_t kLarge = 300'000;
  call.q = call.memory.f32({kLarge, 1, 1});
  call.k = call.v = call.q;
  call.state = call.memory.f32({kLarge, 1, 1, 1});
  call.o = call.memory.f32({kLarge, 1, 1});
  Indices slots(kLarge);
  std::iota(slots.rbegin(), slots.rend(), 0);
  call.slots(slots);
  expect_run();
  slots[7] = slots[kLarge - 7];
  call.slots(slots);
  EXPECT_THROW(call.run(), InvalidArgument);
  EXPECT_EQ(spies.spy.runs, 1);
}

TEST_F(LegalDecodeCall, StateMayBeStoredTransposedOrWithinALargerPool) {
  call.state = call.memory.f32({kSlots, kH, kV, kK}).permute({0, 1, 3, 2});
  expect_run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("layout=strided aligned=yes"));
  call.state = call.memory.f32({kSlots, 2 * kH, kK, kV}).slice(1, kH, 2 * kH);
  call.run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("layout=strided aligned=yes"));
}

TEST_F(LegalDecodeCall, NoRowsWithNullPointers) {
  call.q = null(call.q.slice(0, 0, 0));
  call.k = null(call.k.slice(0, 0, 0));
  call.v = null(call.v.slice(0, 0, 0));
  call.o = null(call.o.slice(0, 0, 0));
  expect_run();
}

TEST_F(LegalDecodeCall, AllocatesO) {
  const Tensor o = ops::recurrent_decode(call.q, call.k, call.v, call.state, call.options);
  EXPECT_EQ(o.shape(), (Extents{kRows, kH, kV}));
  EXPECT_EQ(spies.spy.runs, 1);
}

TEST_F(LegalDecodeCall, PlanRefusesDuplicateSlotsOfALaterLaunch) {
  call.slots(Indices{0, 1, 2});
  const auto plan = ops::plan_recurrent_decode(call.q, call.k, call.v, call.state, call.options);
  auto args = ops::recurrent_decode_args(call.o, call.q, call.k, call.v, call.state, call.options);
  plan.launch(args);
  args.slot_indices = call.memory.of(Indices{2, 1, 2});
  EXPECT_THROW(plan.launch(args), InvalidArgument);
  EXPECT_EQ(spies.spy.runs, 1);
}

class LegalStepOfTokens : public testing::Test {
 protected:
  LegalStepOfTokens() { call.options.call.context = &spies.context(); }
  void expect_problem(const std::string& text) {
    call.run();
    EXPECT_EQ(spies.spy.runs, 1);
    EXPECT_THAT(spies.spy.problem, HasSubstr(text));
  }
  SpyContext spies;
  TokensCall call;
};

TEST_F(LegalStepOfTokens, OfAPlainStep) {
  expect_problem("slots=no layout=bthd aligned=yes tf32=no T=4");
}

TEST_F(LegalStepOfTokens, OfKeptStatesWithPaddingAndStatesThatAreNotKept) {
  call.keep();
  call.kept[2] = call.kept[5] = -1;
  call.accepted[2] = -1;
  expect_problem(
      "S=12 dtype=f32 gate=none gate_dtype=f32 slots=no layout=bthd aligned=yes "
      "tf32=no T=4 kept=yes");
}

TEST_F(LegalStepOfTokens, OfReplayOfNoneAndOfAll) {
  call.replay();
  call.accepted = {0, 3, -2};
  expect_problem("tf32=no T=4 R=3");
}

TEST_F(LegalStepOfTokens, OfReplayWithOneTokenARow) {
  call.tokens(1);
  call.replay();
  expect_problem("tf32=no R=3");
  EXPECT_THAT(spies.spy.problem, Not(HasSubstr("T=")));
}

TEST_F(LegalStepOfTokens, OneTokenIsTheStepWithoutItsDimension) {
  call.tokens(1);
  call.options.g = call.memory.f32({kRows, 1, kH});
  expect_problem("slots=no layout=bthd aligned=yes tf32=no");
  EXPECT_THAT(spies.spy.problem, Not(HasSubstr("T=")));
  const Tensor o = ops::recurrent_decode(call.q, call.k, call.v, call.state, call.options);
  EXPECT_EQ(o.shape(), (Extents{kRows, 1, kH, kV}));
}

TEST_F(LegalStepOfTokens, OneKeptTokenNeedsNoTable) {
  DecodeCall one;
  one.options.call.context = &spies.context();
  one.options.kept_slots = one.memory.of(Indices{4, 0, 2});
  one.options.accepted = one.memory.of(Indices{1, 1, 1});
  one.run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("tf32=no kept=yes"));
}

TEST_F(LegalStepOfTokens, APoolIn16BitsIsOfItsType) {
  call.state = call.memory.zeros(DType::kBF16, call.state.shape);
  expect_problem("tf32=no T=4 state=bf16");
  call.options.state_rounding = stochastic(7);
  call.run();
  EXPECT_THAT(spies.spy.problem, HasSubstr("state=bf16 rounding=stochastic"));
  call.state = call.memory.f32(call.state.shape);
  call.run();
  EXPECT_THAT(spies.spy.problem, Not(HasSubstr("rounding")));
}

TEST_F(LegalStepOfTokens, PlanRefusesADuplicateOfALaterLaunch) {
  call.keep();
  call.set_indices();
  const auto plan = ops::plan_recurrent_decode(call.q, call.k, call.v, call.state, call.options);
  auto args = ops::recurrent_decode_args(call.o, call.q, call.k, call.v, call.state, call.options);
  plan.launch(args);
  call.kept[0] = call.kept[1];
  args.kept_slots = call.memory.of(call.kept);
  args.kept_slots->shape = {kRows, 4};
  args.kept_slots->strides = {4, 1};
  EXPECT_THROW(plan.launch(args), InvalidArgument);
  EXPECT_EQ(spies.spy.runs, 1);
}

TEST(LegalLightningDecodeCall, SelectsUnderItsOwnName) {
  SpyContext spies;
  LightningDecodeCall call;
  call.options.call.context = &spies.context();
  call.run();
  call.options.slopes = std::nullopt;
  call.options.layer_idx = 1;
  call.options.num_layers = 2;
  call.run();
  EXPECT_EQ(spies.spy.runs, 2);
  EXPECT_EQ(spies.spy.called_as, "lightning_decode");
  EXPECT_THAT(spies.spy.problem, HasSubstr("gate=gamma"));
}

}  // namespace
}  // namespace attune::test
