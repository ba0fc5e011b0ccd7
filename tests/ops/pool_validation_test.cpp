// A pool of states in a call: every way to name its slots wrongly, each refused in the caller's
// words before any kernel runs, and what is legal.
#include <gtest/gtest.h>

#include <attune/core/registry.hpp>
#include <attune/ops/gated_linear_attention.hpp>
#include <attune/ops/lightning_attention.hpp>

#include "ops/attention_calls.hpp"
#include "ops/bad_call.hpp"
#include "ops/spy_context.hpp"

namespace attune::test {
namespace {

using Slots = std::vector<std::int32_t>;

/// Two sequences on a pool of five slots, in place.
struct PoolCall : ForwardCall {
  PoolCall() {
    options.states = memory.f32({5, kH, kK, kV});
    options.final_slots = slots({3, 1});
  }
  TensorView slots(const Slots& values) { return memory.of(values); }
  TensorView snapshot_slots(const Slots& values) {
    const TensorView flat = slots(values);
    return {flat.data, flat.dtype, {kB, static_cast<std::int64_t>(values.size()) / kB}};
  }
  /// 130 tokens a sequence.
  void lengthen() {
    q = memory.f32({kB, 130, kH, kK});
    k = memory.f32({kB, 130, kHkv, kK});
    v = memory.f32({kB, 130, kHkv, kV});
    out.o = memory.f32({kB, 130, kH, kV});
  }
};

class BadPoolCall : public testing::TestWithParam<BadCall<PoolCall>> {};

TEST_P(BadPoolCall, IsRefusedBeforeAKernelRuns) {
  expect_refused(GetParam(), "recurrent_attention");
}

const BadCall<PoolCall> kBadPoolCalls[] = {
    {"WithAnInitialState", [](PoolCall& c) { c.options.initial_state = c.state(); },
     "initial_state: given together with states, expected one of the two"},
    {"WithAFinalState", [](PoolCall& c) { c.out.final_state = c.state(); },
     "final_state: given together with states, expected one of the two"},
    {"WithoutFinalSlots", [](PoolCall& c) { c.options.final_slots = {}; },
     "final_slots: not given, expected with states"},
    {"SlotsWithoutAPool", [](PoolCall& c) { c.options.states = {}; },
     "final_slots: given without states"},
    {"SnapshotsWithoutAPool",
     [](PoolCall& c) {
       c.options.states = {};
       c.options.final_slots = {};
       c.options.snapshot_every = 64;
     },
     "snapshot_every: given without states"},
    {"PoolOfOtherHeads",
     [](PoolCall& c) {
       c.options.states = c.memory.f32({5, kHkv, kK, kV});
     },
     "states: shape [5, 2, 8, 16], expected [S, 4, 8, 16]"},
    {"PoolOfIntegers",
     [](PoolCall& c) {
       c.options.states = c.memory.zeros(DType::kI32, {5, kH, kK, kV});
     },
     "states: dtype i32, expected f32, f16 or bf16"},
    {"PoolWhoseSlotsShareMemory",
     [](PoolCall& c) {
       c.options.states = with_strides(*c.options.states, {0, kK * kV, kV, 1});
     },
     "states: shape [5, 4, 8, 16] with strides [0, 128, 16, 1] has elements that share memory"},
    {"SlotsOfOtherSequences",
     [](PoolCall& c) {
       c.options.final_slots = c.slots({3, 1, 0});
     },
     "final_slots: shape [3], expected [2]"},
    {"SlotsOfFloats", [](PoolCall& c) { c.options.initial_slots = c.memory.f32({kB}); },
     "initial_slots: dtype f32, expected i32 or i64"},
    {"FinalSlotBehindThePool",
     [](PoolCall& c) {
       c.options.final_slots = c.slots({5, 1});
     },
     "final_slots: slot 5, expected less than 5 (states' slots)"},
    {"InitialSlotBehindThePool",
     [](PoolCall& c) {
       c.options.initial_slots = c.slots({0, 9});
     },
     "initial_slots: slot 9, expected less than 5 (states' slots)"},
    {"ASlotWrittenTwice",
     [](PoolCall& c) {
       c.options.final_slots = c.slots({3, 3});
     },
     "final_slots: slot 3 stands twice, for sequences 0 and 1"},
    {"ASlotThatAnotherSequenceWrites",
     [](PoolCall& c) {
       c.options.initial_slots = c.slots({1, 0});
     },
     "initial_slots: sequence 0 starts from slot 1, which sequence 1 writes"},
    {"OddSnapshots",
     [](PoolCall& c) {
       c.options.snapshot_every = 100;
       c.options.snapshot_slots = c.snapshot_slots({2, 4});
     },
     "snapshot_every: got 100, expected a multiple of 64"},
    {"NegativeSnapshots",
     [](PoolCall& c) {
       c.options.snapshot_every = -64;
       c.options.snapshot_slots = c.snapshot_slots({2, 4});
     },
     "snapshot_every: got -64, expected a multiple of 64"},
    {"SnapshotsWithoutSlots", [](PoolCall& c) { c.options.snapshot_every = 64; },
     "snapshot_slots: not given, expected with snapshot_every"},
    {"SnapshotSlotsWithoutSnapshots",
     [](PoolCall& c) {
       c.options.snapshot_slots = c.snapshot_slots({2, 4});
     },
     "snapshot_slots: given without snapshot_every"},
    {"TooFewSnapshotSlots",
     [](PoolCall& c) {
       c.lengthen();
       c.options.snapshot_every = 64;
       c.options.snapshot_slots = c.snapshot_slots({2, 4});
     },
     "snapshot_slots: shape [2, 1], expected M >= 2 for the 130 tokens of sequence 0"},
    {"ASnapshotInAFinalSlot",
     [](PoolCall& c) {
       c.options.snapshot_every = 64;
       c.options.snapshot_slots = c.snapshot_slots({2, 3});
     },
     "snapshot_slots: slot 3 stands twice, for sequences 0 and 1"},
    {"ASnapshotWhereAnotherStarts",
     [](PoolCall& c) {
       c.options.initial_slots = c.slots({0, 1});
       c.options.snapshot_every = 64;
       c.options.snapshot_slots = c.snapshot_slots({2, 0});
     },
     "initial_slots: sequence 0 starts from slot 0, which sequence 1 writes"},
};
INSTANTIATE_TEST_SUITE_P(Calls, BadPoolCall, testing::ValuesIn(kBadPoolCalls),
                         bad_call_name<PoolCall>);

/// The problem that a legal call is.
std::string problem_of(PoolCall& call) {
  SpyContext context;
  call.options.call.context = &context.context();
  call.run();
  EXPECT_EQ(context.spy.runs, 1);
  return context.spy.problem;
}

constexpr const char* kPlainText =
    "B=2 T=6 H=4 Hkv=2 K=8 V=16 N=0 dtype=f32 gate=none gate_dtype=f32 h0=no ht=no reverse=no "
    "layout=bthd aligned=yes tf32=no";

TEST(PoolCalls, AreProblemsOfTheirOwn) {
  PoolCall call;
  EXPECT_EQ(problem_of(call), str(kPlainText, " pool=yes"));
  call.options.initial_slots = call.slots({-1, 4});
  EXPECT_EQ(problem_of(call), str(kPlainText, " pool=yes initial_slots=yes"));
  call.options.snapshot_every = 128;
  call.options.snapshot_slots = call.snapshot_slots({0, -1});
  call.options.states = call.memory.zeros(DType::kBF16, {5, kH, kK, kV});
  call.options.state_rounding = stochastic(3);
  EXPECT_EQ(problem_of(call), str(kPlainText,
                                  " pool=yes initial_slots=yes snapshot_every=128 state=bf16 "
                                  "rounding=stochastic"));
}

TEST(PoolCalls, LeaveTheTextOfProblemsWithoutAPoolAsItWas) {
  PoolCall call;
  call.options.states = {};
  call.options.final_slots = {};
  call.options.state_rounding = stochastic(3);  // of f32: none
  EXPECT_EQ(problem_of(call), kPlainText);
}

TEST(PoolCalls, MayLeaveStatesOutAndShareOneToStartFrom) {
  PoolCall call;
  call.options.final_slots = call.slots({-1, -1});
  problem_of(call);
  call.options.initial_slots = call.slots({2, 2});
  problem_of(call);
  call.options.final_slots = call.memory.of(std::vector<std::int64_t>{0, 4});
  problem_of(call);
}

TEST(PoolCalls, MayStoreStatesAsColumns) {
  PoolCall call;
  call.options.states = call.memory.f32({5, kH, kV, kK}).permute({0, 1, 3, 2});
  EXPECT_EQ(problem_of(call), str(kPlainText, " pool=yes"));
}

TEST(PoolCalls, OfPlansAreWhatTheirArgumentsAre) {
  PoolCall call;
  SpyContext context;
  call.options.call.context = &context.context();
  call.options.initial_slots = call.slots({-1, 4});
  const auto plan = ops::plan_recurrent_attention(call.q, call.k, call.v, call.options);
  const auto args = ops::recurrent_attention_args(call.out, call.q, call.k, call.v, call.options);
  plan.launch(args);
  EXPECT_EQ(context.spy.runs, 1);
  call.options.initial_slots = {};
  EXPECT_THROW(
      plan.launch(ops::recurrent_attention_args(call.out, call.q, call.k, call.v, call.options)),
      InvalidArgument);
}

TEST(PoolCalls, AllocateNoFinalState) {
  PoolCall call;
  call.options.want_final_state = true;
  try {
    recurrent_attention(call.q, call.k, call.v, call.options);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "recurrent_attention: want_final_state: given together with states");
  }
}

TEST(PoolCalls, AreTheSameUnderEveryName) {
  PoolCall call;
  SpyContext context;
  const ops::CallOptions where{.context = &context.context()};
  const ops::GatedLinearAttentionOptions gated{
      .states = call.options.states, .final_slots = call.options.final_slots, .call = where};
  const TensorView gk = call.gk();
  ops::gated_linear_attention(call.q, call.k, call.v, gk, gated);
  EXPECT_THAT(context.spy.problem, testing::EndsWith("pool=yes"));
  EXPECT_TRUE(ops::lowered(gk, gated).states.has_value());
  ops::lightning_attention(call.q, call.k, call.v,
                           {.layer_idx = 0,
                            .num_layers = 2,
                            .states = call.options.states,
                            .final_slots = call.options.final_slots,
                            .call = where});
  EXPECT_THAT(context.spy.problem, testing::EndsWith("pool=yes"));
}

TEST(PoolCalls, HaveNoBackwardPass) {
  BackwardCall call;
  call.options.states = call.memory.f32({5, kH, kK, kV});
  try {
    call.run();
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "recurrent_attention.backward: states: given to the backward pass");
  }
}

/// A kernel that was written before there were pools.
TEST(PoolCalls, NeverReachAKernelThatDoesNotNameThem) {
  Spy spy;
  const SpyKernel<ops::RecurrentAttention> kernel(&spy);
  const auto reason_of = [&](const ops::RecurrentAttentionProblem& problem) {
    return kernel
        .erased_supports(ProblemRef::of<ops::RecurrentAttention>(problem), cpu_device().info())
        .reason();
  };
  ops::RecurrentAttentionProblem problem{.T = 6, .Hkv = 1, .K = 8, .V = 8};
  EXPECT_EQ(reason_of(problem), "");
  problem.pool = true;
  EXPECT_EQ(reason_of(problem), "lacks the feature pool");
  problem.snapshot_every = 64;
  problem.state_dtype = DType::kF16;
  EXPECT_EQ(reason_of(problem), "lacks the feature pool, snapshot_every, state=f16");
}

TEST(PoolProblems, HaveOneSpellingAndLegalFields) {
  using Op = ops::RecurrentAttention;
  const auto parse = [](const char* text) {
    return problem_text<Op>(parse_problem<Op>(parse_params(text, ' ')));
  };
  EXPECT_THAT(parse("T=8 D=8 state=bf16 rounding=stochastic"), testing::EndsWith("tf32=no"));
  EXPECT_THAT(parse("T=8 D=8 ht=yes state=bf16"), testing::EndsWith("state=bf16"));
  EXPECT_THROW(parse("T=8 D=8 pool=yes h0=yes"), InvalidArgument);
  EXPECT_THROW(parse("T=8 D=8 initial_slots=yes"), InvalidArgument);
  EXPECT_THROW(parse("T=8 D=8 snapshot_every=64"), InvalidArgument);
  EXPECT_THROW(parse("T=8 D=8 pool=yes snapshot_every=96"), InvalidArgument);
}

}  // namespace
}  // namespace attune::test
