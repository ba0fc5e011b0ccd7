// Made-up cases: what their tensors are, and that they are the same every time.
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/case_support.hpp"
#include "ops/spy_context.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttention;
using ops::RecurrentAttentionBackward;
using ops::RecurrentDecode;
using testing::Each;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

std::vector<double> host_values(const ConstTensorView& view) { return to_doubles(view); }

bool aligned(const ConstTensorView& view) {
  return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
}

std::vector<std::string> output_names(const Case& made) {
  std::vector<std::string> names;
  for (const NamedTensor& output : made.outputs()) names.push_back(output.name);
  return names;
}

/// Bytes of all outputs.
std::vector<double> output_values(const Case& made, const Device& device) {
  std::vector<double> values;
  for (const auto& [name, tensor] : copy_outputs(made, device)) {
    for (const double value : to_doubles(tensor.view())) values.push_back(value);
  }
  return values;
}

TEST(MadeCase, HasTheSameInputsForTheSameSeed) {
  const char* const problem = "B=2 T=5 H=2 K=8 V=4 gate=gk+gamma h0=yes dtype=bf16";
  const auto one = make_case("recurrent_attention", problem, 7);
  const auto same = make_case("recurrent_attention", problem, 7);
  const auto other = make_case("recurrent_attention", problem, 8);
  const auto values = [](const Case& made) {
    const auto& args = args_of<RecurrentAttention>(made);
    std::vector<double> all = host_values(args.q);
    for (const auto& view : {args.k, args.v, *args.gk, args.gamma.values, *args.initial_state}) {
      for (const double value : host_values(view)) all.push_back(value);
    }
    return all;
  };
  EXPECT_EQ(values(*one), values(*same));
  EXPECT_NE(values(*one), values(*other));
}

TEST(MadeCase, HasInputsOfOrderOneAndGatesThatDecay) {
  const auto made = make_case("recurrent_attention", "B=2 T=64 H=4 D=64 gate=g+gamma+gk+gv h0=yes");
  const auto& args = args_of<RecurrentAttention>(*made);
  double squares = 0;
  const std::vector<double> q = host_values(args.q);
  for (const double value : q) squares += value * value;
  EXPECT_NEAR(squares / static_cast<double>(q.size()), 1, 0.05);
  EXPECT_NE(q, host_values(args.k));
  for (const auto& gate : {*args.g, *args.gk, *args.gv, args.gamma.values}) {
    EXPECT_THAT(host_values(gate), Each(testing::AllOf(testing::Gt(-0.501), testing::Lt(-0.049))));
  }
  EXPECT_THAT(host_values(*args.initial_state),
              Each(testing::AllOf(testing::Gt(-0.36), testing::Lt(0.36))));
}

TEST(MadeCase, HasTheLayoutOfItsProblem) {
  const auto q_of = [](const Case& made) { return args_of<RecurrentAttention>(made).q; };
  const auto dense = make_case("recurrent_attention", "B=2 T=3 H=2 D=8");
  EXPECT_TRUE(q_of(*dense).is_contiguous());
  EXPECT_TRUE(aligned(q_of(*dense)));
  const auto swapped = make_case("recurrent_attention", "B=2 T=3 H=2 D=8 layout=bhtd");
  EXPECT_EQ(q_of(*swapped).strides, (Extents{48, 8, 24, 1}));
  const auto strided = make_case("recurrent_attention", "B=2 T=3 H=2 D=8 layout=strided");
  EXPECT_FALSE(q_of(*strided).is_contiguous());
  EXPECT_TRUE(aligned(q_of(*strided)));
  const auto shifted = make_case("recurrent_attention", "B=2 T=3 H=2 D=8 aligned=no");
  EXPECT_TRUE(q_of(*shifted).is_contiguous());
  EXPECT_FALSE(aligned(q_of(*shifted)));
  EXPECT_FALSE(aligned(args_of<RecurrentAttention>(*shifted).o));
}

TEST(MadeCase, HasTheSameValuesInEveryLayout) {
  const auto dense = make_case("recurrent_attention", "B=2 T=3 H=2 D=5");
  for (const char* const layout : {"layout=bhtd", "layout=strided", "aligned=no"}) {
    const auto other = make_case("recurrent_attention", str("B=2 T=3 H=2 D=5 ", layout));
    EXPECT_EQ(host_values(args_of<RecurrentAttention>(*other).q),
              host_values(args_of<RecurrentAttention>(*dense).q))
        << layout;
  }
}

TEST(MadeCase, PacksSequencesOfUnequalLengthsOneOfThemEmpty) {
  const auto made = make_case("recurrent_attention", "N=3 T=95 H=1 D=4");
  const std::vector<double> bounds = host_values(*args_of<RecurrentAttention>(*made).cu_seqlens);
  ASSERT_EQ(bounds.size(), 4U);
  EXPECT_EQ(bounds[0], 0);
  EXPECT_GT(bounds[1], 64);
  EXPECT_EQ(bounds[2], bounds[1]);
  EXPECT_LT(bounds[2], bounds[3]);
  EXPECT_EQ(bounds[3], 95);
}

TEST(MadeCase, HasTheOutputsOfItsProblem) {
  EXPECT_THAT(output_names(*make_case("recurrent_attention", "T=3 D=4")), ElementsAre("o"));
  EXPECT_THAT(output_names(*make_case("recurrent_attention", "T=3 D=4 ht=yes")),
              ElementsAre("o", "final_state"));
  EXPECT_THAT(output_names(*make_case("recurrent_attention.backward", "T=3 D=4 do=no ht=yes")),
              ElementsAre("dq", "dk", "dv"));
  EXPECT_THAT(
      output_names(*make_case("recurrent_attention.backward", "T=3 D=4 gate=g+gamma+gk+gv h0=yes")),
      UnorderedElementsAre("dq", "dk", "dv", "dg", "dg_gamma", "dgk", "dgv", "dinitial_state"));
  EXPECT_THAT(output_names(*make_case("recurrent_decode", "B=2 D=4")),
              UnorderedElementsAre("o", "kv_cache"));
}

TEST(MadeCase, GivesADecodeEachSlotOnceAndPadsRowsWithoutOne) {
  const auto made = make_case("recurrent_decode", "B=9 S=7 D=4");
  const std::vector<double> slots = host_values(*args_of<RecurrentDecode>(*made).slot_indices);
  EXPECT_THAT(slots, UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, -1, -1));
  EXPECT_FALSE(
      args_of<RecurrentDecode>(*make_case("recurrent_decode", "B=2 D=4 slots=no")).slot_indices);
}

TEST(MadeCase, ResetRestoresWhatIsUpdatedAndPoisonsTheRest) {
  for (const char* const layout : {"", " layout=strided", " aligned=no"}) {
    const auto made = make_case("recurrent_decode", str("B=2 S=3 H=2 D=4", layout));
    const auto& args = args_of<RecurrentDecode>(*made);
    const std::vector<double> before = host_values(args.state);
    static_cast<float*>(args.state.data)[1] = 17;
    static_cast<float*>(args.o.data)[0] = 17;
    made->reset(std::byte{0xff});
    EXPECT_EQ(host_values(args.state), before);
    for (const double value : host_values(args.o)) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(MadeCase, HasAllItsTensorsOnItsDevice) {
  const OtherDevice gpu;
  const auto there = make_case("recurrent_decode", "B=2 S=3 D=4 gate=gk+gamma", 3, gpu);
  const auto here = make_case("recurrent_decode", "B=2 S=3 D=4 gate=gk+gamma", 3);
  const auto& args = args_of<RecurrentDecode>(*there);
  for (const ConstTensorView& view :
       std::vector<ConstTensorView>{args.q, args.k, args.v, *args.gk, args.gamma.values,
                                    *args.slot_indices, args.state, args.o}) {
    EXPECT_EQ(view.device, gpu.info().id);
  }
  there->reset(std::byte{0});
  here->reset(std::byte{0});
  EXPECT_EQ(output_values(*there, gpu), output_values(*here, cpu_device()));
}

TEST(MadeCase, IsWhatPlansTakeForAllSortsOfProblems) {
  const char* const problems[] = {
      "B=0 T=5 H=2 D=8 layout=strided",
      "T=0 H=2 D=8 h0=yes ht=yes aligned=no",
      "T=1 D=1 layout=strided",
      "B=2 T=3 H=4 Hkv=2 K=3 V=17 dtype=f16",
      "B=1 T=3 H=4 Hkv=1 K=32 V=8 layout=bhtd dtype=bf16",
      "N=4 T=9 H=2 K=4 V=8 gate=gk+gv gate_dtype=mixed dtype=bf16 h0=yes",
      "B=2 T=7 H=2 D=8 layout=strided aligned=no gate=g gate_dtype=io dtype=f16 ht=yes "
      "reverse=yes"};
  for (const char* const problem : problems) {
    const auto forward = make_case("recurrent_attention", problem);
    EXPECT_NO_THROW(RecurrentAttention::check_args(forward->problem().as<RecurrentAttention>(),
                                                   args_of<RecurrentAttention>(*forward)))
        << problem;
    const auto parsed = parse_problem<RecurrentAttention>(parse_params(problem, ' '));
    EXPECT_EQ(forward->problem().as<RecurrentAttention>(), parsed) << problem;
    const auto backward = make_case("recurrent_attention.backward", problem);
    EXPECT_NO_THROW(
        RecurrentAttentionBackward::check_args(backward->problem().as<RecurrentAttentionBackward>(),
                                               args_of<RecurrentAttentionBackward>(*backward)))
        << problem;
    EXPECT_EQ(backward->problem().as<RecurrentAttentionBackward>(), parsed) << problem;
  }
}

}  // namespace
}  // namespace attune::test
