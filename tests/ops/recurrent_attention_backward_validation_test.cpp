// Every way to call recurrent_attention_backward wrongly.
#include <gtest/gtest.h>

#include "ops/attention_calls.hpp"
#include "ops/bad_call.hpp"

namespace attune::test {
namespace {

class BadBackwardCall : public testing::TestWithParam<BadCall<BackwardCall>> {};

TEST_P(BadBackwardCall, IsRefusedBeforeAKernelRuns) {
  expect_refused(GetParam(), "recurrent_attention.backward");
}

using Backward = BackwardCall;
const BadCall<BackwardCall> kBadBackwardCalls[] = {
    {"NoOutputGradient", [](Backward& c) { c.gradients = {}; },
     "d_o: neither it nor dfinal_state is given, expected at least one"},
    {"DoOfKeyChannels", [](Backward& c) { c.gradients.d_o = c.gk(); },
     "d_o: shape [2, 6, 4, 8], expected [2, 6, 4, 16]"},
    {"DoOfAnotherType",
     [](Backward& c) {
       c.gradients.d_o = c.memory.zeros(DType::kBF16, {kB, kT, kH, kV});
     },
     "d_o: dtype bf16, expected f32 (q's)"},
    {"DfinalStateOfOtherSequences", [](Backward& c) { c.gradients.dfinal_state = c.state(1); },
     "dfinal_state: shape [1, 4, 8, 16], expected [2, 4, 8, 16]"},
    {"DqNotGiven", [](Backward& c) { c.out.dq = {}; }, "dq: shape [], expected [2, 6, 4, 8]"},
    {"DkOfQueryHeads", [](Backward& c) { c.out.dk = c.gk(); },
     "dk: shape [2, 6, 4, 8], expected [2, 6, 2, 8]"},
    {"DgMissing", [](Backward& c) { c.out.dg = std::nullopt; }, "dg: not given, expected with g"},
    {"DgGammaMissing", [](Backward& c) { c.out.dg_gamma = std::nullopt; },
     "dg_gamma: not given, expected with g_gamma"},
    {"DinitialStateMissing", [](Backward& c) { c.out.dinitial_state = std::nullopt; },
     "dinitial_state: not given, expected with initial_state"},
    {"DgvWithoutGv", [](Backward& c) { c.options.gv = std::nullopt; }, "dgv: given without gv"},
    {"DgkOfAnotherShape", [](Backward& c) { c.out.dgk = c.gv(); },
     "dgk: shape [2, 6, 4, 16], expected [2, 6, 4, 8] (gk's)"},
    {"DgIn16Bits",
     [](Backward& c) {
       c.out.dg = c.memory.zeros(DType::kBF16, {kB, kT, kH});
     },
     "dg: dtype bf16, expected f32"},
    {"DgGammaOverSequences",
     [](Backward& c) {
       c.out.dg_gamma = c.memory.f32({kB, kH});
     },
     "dg_gamma: shape [2, 4], expected [4] (g_gamma's)"},
    {"DgGammaOfRepeatedSequences",
     [](Backward& c) {
       c.options.g_gamma = c.memory.f32({kB, kH});
       c.out.dg_gamma = with_strides(c.memory.f32({kB, kH}), {0, 1});
     },
     "dg_gamma: shape [2, 4] with strides [0, 1] has elements that share memory"},
    {"DqIsQ", [](Backward& c) { c.out.dq = c.q; }, "dq: overlaps q"},
    {"DkIsDq",
     [](Backward& c) {
       c.k = c.gk();
       c.v = c.gv();
       c.out.dv = c.gv();
       c.out.dk = c.out.dq;
     },
     "dk: overlaps dq"},
    {"DinitialStateIsDfinalState",
     [](Backward& c) {
       c.out.dinitial_state = c.state();
       c.gradients.dfinal_state = *c.out.dinitial_state;
     },
     "dinitial_state: overlaps dfinal_state"},
    {"DvOnAnotherDevice", [](Backward& c) { c.out.dv = on_gpu(c.out.dv); },
     "dv: on device gpu:0, expected cpu:0 (q's)"},
    {"NullDgk", [](Backward& c) { c.out.dgk = null(*c.out.dgk); }, "dgk: null pointer"},
    {"DgvWithSpacedChannels",
     [](Backward& c) {
       c.out.dgv = c.memory.f32({kB, kT, kH, 2 * kV});
       c.out.dgv->shape[3] = kV;
       c.out.dgv->strides[3] = 2;
     },
     "dgv: strides [768, 128, 32, 2], expected a contiguous last dimension"},
};

INSTANTIATE_TEST_SUITE_P(Each, BadBackwardCall, testing::ValuesIn(kBadBackwardCalls),
                         bad_call_name<BackwardCall>);

}  // namespace
}  // namespace attune::test
