// Every way to call recurrent_attention wrongly, each refused in the caller's words before any
// kernel runs.
#include <limits>

#include <gtest/gtest.h>

#include "ops/attention_calls.hpp"
#include "ops/bad_call.hpp"
#include "ops/spy_context.hpp"

namespace attune::test {
namespace {

class BadForwardCall : public testing::TestWithParam<BadCall<ForwardCall>> {};

TEST_P(BadForwardCall, IsRefusedBeforeAKernelRuns) {
  expect_refused(GetParam(), "recurrent_attention");
}

using Forward = ForwardCall;
constexpr std::int64_t kHuge = std::int64_t{1} << 40;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const BadCall<ForwardCall> kBadForwardCalls[] = {
    // Shapes.
    {"QOfRank3",
     [](Forward& c) {
       c.q = c.memory.f32({kT, kH, kK});
     },
     "q: shape [6, 4, 8], expected [B, T, H, K]"},
    {"QWithoutHeads", [](Forward& c) { c.q = c.q.slice(2, 0, 0); },
     "q: shape [2, 6, 0, 8], expected at least one head"},
    {"QWithoutChannels", [](Forward& c) { c.q = c.q.slice(3, 0, 0); },
     "q: shape [2, 6, 4, 0], expected K >= 1"},
    {"NegativeExtent", [](Forward& c) { c.q.shape[1] = -1; },
     "q: shape [2, -1, 4, 8], expected [B, T, H, K]"},
    {"KOfAnotherLength", [](Forward& c) { c.k = c.k.slice(1, 0, 5); },
     "k: shape [2, 5, 2, 8], expected [2, 6, Hkv, 8]"},
    {"KOfOtherChannels", [](Forward& c) { c.k = c.k.slice(3, 0, 4); },
     "k: shape [2, 6, 2, 4], expected [2, 6, Hkv, 8]"},
    {"KWithHeadsThatDoNotDivide",
     [](Forward& c) {
       c.k = c.memory.f32({kB, kT, 3, kK});
     },
     "k: 3 heads, expected a divisor of q's 4"},
    {"KWithoutHeads", [](Forward& c) { c.k = c.k.slice(2, 0, 0); },
     "k: 0 heads, expected a divisor of q's 4"},
    {"VWithOtherHeads", [](Forward& c) { c.v = c.v.slice(2, 0, 1); },
     "v: shape [2, 6, 1, 16], expected [2, 6, 2, V]"},
    {"VWithoutChannels", [](Forward& c) { c.v = c.v.slice(3, 0, 0); },
     "v: shape [2, 6, 2, 0], expected V >= 1"},
    {"GOfKvHeads",
     [](Forward& c) {
       c.options.g = c.memory.f32({kB, kT, kHkv});
     },
     "g: shape [2, 6, 2], expected [2, 6, 4]"},
    {"GOfRank2",
     [](Forward& c) {
       c.options.g = c.memory.f32({kT, kH});
     },
     "g: shape [6, 4], expected [2, 6, 4]"},
    {"PerChannelGOfValues", [](Forward& c) { c.options.g = c.gv(); },
     "g: shape [2, 6, 4, 16], expected [2, 6, 4, 8]"},
    {"PerChannelGWithGk", [](Forward& c) { c.options.g = c.gk(), c.options.gk = c.gk(); },
     "g: shape [2, 6, 4, 8] has a decay for each key channel"},
    {"GkOfValueChannels", [](Forward& c) { c.options.gk = c.gv(); },
     "gk: shape [2, 6, 4, 16], expected [2, 6, 4, 8]"},
    {"GvOfKeyChannels", [](Forward& c) { c.options.gv = c.gk(); },
     "gv: shape [2, 6, 4, 8], expected [2, 6, 4, 16]"},
    {"GGammaOfKvHeads", [](Forward& c) { c.options.g_gamma = c.memory.f32({kHkv}); },
     "g_gamma: shape [2], expected [4]"},
    {"GGammaOfOtherSequences",
     [](Forward& c) {
       c.options.g_gamma = c.memory.f32({3, kH});
     },
     "g_gamma: shape [3, 4], expected [2, 4]"},
    {"InitialStateOfOtherSequences", [](Forward& c) { c.options.initial_state = c.state(3); },
     "initial_state: shape [3, 4, 8, 16], expected [2, 4, 8, 16]"},
    {"InitialStateTransposed",
     [](Forward& c) {
       c.options.initial_state = c.memory.f32({kB, kH, kV, kK});
     },
     "initial_state: shape [2, 4, 16, 8], expected [2, 4, 8, 16]"},
    {"FinalStateOfKvHeads",
     [](Forward& c) {
       c.out.final_state = c.memory.f32({kB, kHkv, kK, kV});
     },
     "final_state: shape [2, 2, 8, 16], expected [2, 4, 8, 16]"},
    {"OOfKeyChannels",
     [](Forward& c) {
       c.out.o = c.memory.f32({kB, kT, kH, kK});
     },
     "o: shape [2, 6, 4, 8], expected [2, 6, 4, 16]"},
    // Types.
    {"QOfIntegers", [](Forward& c) { c.q = c.memory.zeros(DType::kI32, c.q.shape); },
     "q: dtype i32, expected f32, f16 or bf16"},
    {"KOfAnotherType", [](Forward& c) { c.k = c.memory.zeros(DType::kBF16, c.k.shape); },
     "k: dtype bf16, expected f32 (q's)"},
    {"VOfAnotherType", [](Forward& c) { c.v = c.memory.zeros(DType::kF16, c.v.shape); },
     "v: dtype f16, expected f32 (q's)"},
    {"GOfNeitherType",
     [](Forward& c) {
       c.options.g = c.memory.zeros(DType::kF16, {kB, kT, kH});
     },
     "g: dtype f16, expected f32"},
    {"GammaIn16Bits", [](Forward& c) { c.options.g_gamma = c.memory.zeros(DType::kBF16, {kH}); },
     "g_gamma: dtype bf16, expected f32"},
    {"InitialStateOfIntegers",
     [](Forward& c) {
       c.options.initial_state = c.memory.zeros(DType::kI32, {kB, kH, kK, kV});
     },
     "initial_state: dtype i32, expected f32, f16 or bf16"},
    {"StatesOfTwoTypes",
     [](Forward& c) {
       c.options.initial_state = c.state();
       c.out.final_state = c.memory.zeros(DType::kBF16, {kB, kH, kK, kV});
     },
     "final_state: dtype bf16, expected f32 (initial_state's)"},
    {"OOfAnotherType", [](Forward& c) { c.out.o = c.memory.zeros(DType::kBF16, c.out.o.shape); },
     "o: dtype bf16, expected f32 (q's)"},
    // Strides.
    {"QWithSpacedChannels",
     [](Forward& c) {
       c.q = c.memory.f32({kB, kT, kH, 2 * kK}), c.q.shape[3] = kK, c.q.strides[3] = 2;
     },
     "q: strides [384, 64, 16, 2], expected a contiguous last dimension"},
    {"GkWithRepeatedChannels",
     [](Forward& c) {
       c.options.gk = with_strides(c.gk(), {192, 32, 8, 0});
     },
     "gk: strides [192, 32, 8, 0], expected a contiguous last dimension"},
    {"OWithRepeatedTokens",
     [](Forward& c) {
       c.out.o = with_strides(c.out.o, {384, 0, 16, 1});
     },
     "o: shape [2, 6, 4, 16] with strides [384, 0, 16, 1] has elements that share memory"},
    {"OWithRowsThatOverlap",
     [](Forward& c) {
       c.out.o = with_strides(c.out.o, {384, 64, 15, 1});
     },
     "o: shape [2, 6, 4, 16] with strides [384, 64, 15, 1] has elements that share memory"},
    {"FinalStateOfRepeatedSequences",
     [](Forward& c) {
       c.out.final_state = with_strides(c.state(), {0, 128, 16, 1});
     },
     "final_state: shape [2, 4, 8, 16] with strides [0, 128, 16, 1] has elements"},
    // Sizes.
    {"TooManyElements",
     [](Forward& c) {
       c.q = {c.q.data, DType::kF32, {kHuge, kHuge, 4, 8}, {0, 0, 8, 1}};
     },
     "q: shape [1099511627776, 1099511627776, 4, 8], expected at most 2^63 - 1 elements"},
    {"TooLongAStride",
     [](Forward& c) {
       c.q = with_strides(c.q, {std::int64_t{1} << 62, 32, 8, 1});
     },
     "q: shape [2, 6, 4, 8] with strides [4611686018427387904, 32, 8, 1] spans more than"},
    {"TooLargeAnOutput",
     [](Forward& c) {
       constexpr std::int64_t kTokens = std::int64_t{1} << 58;
       c.q = {c.q.data, DType::kF32, {1, kTokens, 1, 1}, {0, 0, 1, 1}};
       c.k = {c.k.data, DType::kF32, {1, kTokens, 1, 1}, {0, 0, 1, 1}};
       c.v = {c.v.data, DType::kF32, {1, kTokens, 1, 16}, {0, 0, 16, 1}};
     },
     "v: shape [1, 288230376151711744, 1, 16] makes an o of more than 2^63 - 1 bytes"},
    // Pointers and devices.
    {"NullQ", [](Forward& c) { c.q = null(c.q); },
     "q: null pointer to a tensor of shape [2, 6, 4, 8]"},
    {"NullGv", [](Forward& c) { c.options.gv = null(c.gv()); }, "gv: null pointer"},
    {"NullO", [](Forward& c) { c.out.o = null(c.out.o); }, "o: null pointer"},
    {"OddAddress", [](Forward& c) { c.v.data = static_cast<std::byte*>(c.v.data) + 2; },
     "v: address 0x"},
    {"KOnAnotherDevice", [](Forward& c) { c.k = on_gpu(c.k); },
     "k: on device gpu:0, expected cpu:0 (q's)"},
    {"GammaOnAnotherDevice", [](Forward& c) { c.options.g_gamma = on_gpu(c.g_gamma()); },
     "g_gamma: on device gpu:0, expected cpu:0 (q's)"},
    {"OOnAnotherDevice", [](Forward& c) { c.out.o = on_gpu(c.out.o); },
     "o: on device gpu:0, expected cpu:0 (q's)"},
    {"CuSeqlensOnAnotherDevice",
     [](Forward& c) {
       c.pack();
       c.options.cu_seqlens->device = {"gpu", 0};
     },
     "cu_seqlens: on device gpu:0, expected cpu:0 (q's)"},
    {"BackendThatQIsNotOn", [](Forward& c) { c.options.call.backend = "gpu"; },
     "backend: gpu asked for, but q is on cpu:0"},
    // Overlap.
    {"OIsQ",
     [](Forward& c) {
       c.v = c.memory.f32({kB, kT, kHkv, kK}), c.out.o = c.q;
     },
     "o: overlaps q, expected memory of its own"},
    {"OBeginsWithinV",
     [](Forward& c) {
       c.v = c.memory.f32({4, kT, kHkv, kV}).slice(0, 0, kB);
       c.out.o = {static_cast<float*>(c.v.data) + 60, c.out.o.shape};
     },
     "o: overlaps v"},
    {"OSharesAChannelWithQ",
     [](Forward& c) {
       const TensorView fused = c.memory.f32({kB, kT, kH, kK + kV});
       c.q = fused.slice(3, 0, kK);
       c.out.o = fused.slice(3, kK - 1, kK - 1 + kV);
     },
     "o: overlaps q"},
    {"FinalStateWithinInitialState",
     [](Forward& c) {
       const TensorView states = c.state(3);
       c.options.initial_state = states.slice(0, 0, 2);
       c.out.final_state = states.slice(0, 1, 3);
     },
     "final_state: overlaps initial_state, expected exactly the same array or none of it"},
    {"FinalStateIsInitialStateTransposed",
     [](Forward& c) {
       c.q = c.memory.f32({kB, kT, kH, kV});
       c.k = c.memory.f32({kB, kT, kHkv, kV});
       c.options.initial_state = c.memory.f32({kB, kH, kV, kV});
       c.out.final_state = TensorView(c.memory.f32({1}));
       c.out.final_state->data = const_cast<void*>(c.options.initial_state->data);
       c.out.final_state->shape = c.options.initial_state->shape;
       c.out.final_state->strides = {kH * kV * kV, kV * kV, 1, kV};
     },
     "final_state: overlaps initial_state"},
    {"FinalStateIsO",
     [](Forward& c) {
       c.out.final_state = c.state();
       c.out.o = {c.out.final_state->data, DType::kF32, c.out.o.shape};
     },
     "final_state: overlaps o"},
    // Packed sequences.
    {"CuSeqlensOfRank2",
     [](Forward& c) {
       c.pack();
       c.options.cu_seqlens = c.memory.zeros(DType::kI32, {1, 3});
     },
     "cu_seqlens: shape [1, 3], expected [N + 1]"},
    {"CuSeqlensOfFloats",
     [](Forward& c) {
       c.pack();
       c.options.cu_seqlens = c.memory.f32({3});
     },
     "cu_seqlens: dtype f32, expected i32 or i64"},
    {"CuSeqlensOfNoSequence",
     [](Forward& c) {
       c.pack();
       c.options.cu_seqlens = c.memory.zeros(DType::kI32, {1});
     },
     "cu_seqlens: shape [1], expected at least 2 values"},
    {"CuSeqlensThatDoNotStartAtZero",
     [](Forward& c) {
       c.pack();
       c.options.cu_seqlens = c.memory.of(std::vector<std::int64_t>{3, 4, kT});
     },
     "cu_seqlens: values must start at 0, got 3"},
    {"CuSeqlensThatFall",
     [](Forward& c) {
       c.pack();
       c.options.cu_seqlens = c.memory.of(std::vector<std::int32_t>{0, 5, 4, kT});
     },
     "cu_seqlens: values must not fall, got 4 after 5"},
    {"CuSeqlensThatEndEarly",
     [](Forward& c) {
       c.pack();
       c.options.cu_seqlens = c.memory.of(std::vector<std::int32_t>{0, 2, 7});
     },
     "cu_seqlens: values must not exceed the number of tokens, 6, got 7"},
    {"CuSeqlensWithABatch",
     [](Forward& c) {
       c.options.cu_seqlens = c.memory.of(std::vector<std::int32_t>{0, kT});
     },
     "q: shape [2, 6, 4, 8], expected B = 1 with cu_seqlens"},
    {"HostCuSeqlensAlone",
     [](Forward& c) {
       c.options.cu_seqlens_host = c.memory.of(std::vector<std::int32_t>{0, kT});
     },
     "cu_seqlens_host: given without cu_seqlens"},
    {"HostCuSeqlensThatDiffer",
     [](Forward& c) {
       c.pack();
       c.options.cu_seqlens_host = c.memory.of(std::vector<std::int64_t>{0, 3, kT});
     },
     "cu_seqlens_host: value 1 is 3, expected 2 as in cu_seqlens"},
    {"HostCuSeqlensOnADevice",
     [](Forward& c) {
       c.pack();
       c.options.cu_seqlens_host = on_gpu(c.memory.of(std::vector<std::int64_t>{0, 2, kT}));
     },
     "cu_seqlens_host: on device gpu:0, expected host memory (cpu:0)"},
    {"PackedKOfAnotherLength",
     [](Forward& c) {
       c.pack();
       c.k = c.memory.f32({kT - 1, kHkv, kK});
     },
     "k: shape [5, 2, 8], expected [6, Hkv, 8] with cu_seqlens"},
    {"StatesOfTheBatchWithCuSeqlens",
     [](Forward& c) {
       c.pack();
       c.options.initial_state = c.state(1);
     },
     "initial_state: shape [1, 4, 8, 16], expected [2, 4, 8, 16]"},
    // Values and settings.
    {"ScaleThatIsNotFinite", [](Forward& c) { c.options.scale = kInfinity; },
     "scale: got inf, expected a finite number"},
    {"ConfigThatIsNoPair", [](Forward& c) { c.options.call.config = "unroll"; },
     "config: 'unroll': expected name=value"},
    {"ConfigGivenTwice", [](Forward& c) { c.options.call.config = "unroll=1,unroll=2"; },
     "config: 'unroll' is given twice"},
};

INSTANTIATE_TEST_SUITE_P(Each, BadForwardCall, testing::ValuesIn(kBadForwardCalls),
                         bad_call_name<ForwardCall>);

TEST(RecurrentAttentionCall, NamesTheKernelsParametersWhenAnOverrideHasAnother) {
  SpyContext context;
  ForwardCall call;
  call.options.call.context = &context.context();
  call.options.call.config = "unrol=2";
  EXPECT_THROW(call.run(), InvalidArgument);
  EXPECT_EQ(context.spy.runs, 0);
}

TEST(RecurrentAttentionCall, IsRefusedOnADeviceThatTheContextHasNot) {
  SpyContext context;
  ForwardCall call;
  for (TensorView* view : {&call.q, &call.k, &call.v, &call.out.o}) view->device = {"npu", 0};
  call.options.call.context = &context.context();
  EXPECT_THROW(call.run(), Unavailable);
}

}  // namespace
}  // namespace attune::test
