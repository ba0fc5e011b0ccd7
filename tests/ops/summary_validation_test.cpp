// Every way to launch summaries and folds wrongly, and the problems that there are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/registry.hpp>
#include <attune/ops/state_fold_op.hpp>
#include <attune/ops/state_summary_op.hpp>

#include "ops/case_support.hpp"

namespace attune::test {
namespace {

using ops::StateFold;
using ops::StateSummary;
using testing::HasSubstr;

/// What a launch of a case's arguments, changed, is refused with; "" when it is not.
template <class Op, class Change>
std::string launch_refusal(std::string_view problem, const Change& change) {
  const auto made = make_case(Op::kName, problem);
  typename Op::Args args = args_of<Op>(*made);
  change(args);
  try {
    Op::check_args(made->problem().template as<Op>(), args);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

constexpr std::string_view kSummary = "B=2 T=6 H=4 Hkv=2 K=8 V=3 gate=g+gv h0=yes";

TEST(StateSummaryArgs, AreChecked) {
  using Args = StateSummary::Args;
  const auto refusal = [](const auto& change) {
    return launch_refusal<StateSummary>(kSummary, change);
  };
  EXPECT_EQ(refusal([](Args&) {}), "");
  EXPECT_EQ(refusal([](Args& args) { args.v = args.v.slice(1, 0, 5); }),
            "state_summary: v: shape [2, 5, 2, 3], expected [2, 6, 2, V]");
  EXPECT_EQ(refusal([](Args& args) { args.k = args.k.slice(2, 0, 0); }),
            "state_summary: k: 0 heads, expected a divisor of 4");
  EXPECT_EQ(refusal([](Args& args) { args.gv_sum.reset(); }),
            "state_summary: gv_sum: not given, expected with gv");
  EXPECT_EQ(refusal([](Args& args) { args.gk_sum = args.gk_sum.slice(2, 0, 7); }),
            "state_summary: gk_sum: shape [2, 4, 7], expected [2, 4, 8]");
  EXPECT_THAT(refusal([](Args& args) { args.gv.reset(); }),
              HasSubstr("state_summary: gv_sum: given without gv"));
  EXPECT_THAT(refusal([](Args& args) { args.final_state.data = const_cast<void*>(args.v.data); }),
              HasSubstr("state_summary: final_state: "));
  EXPECT_EQ(refusal([](Args& args) { args.initial_state.reset(); }),
            "state_summary: args: h0 is no, expected the plan's yes");
}

TEST(StateSummaryProblem, OfNoGatesIsNotInclusive) {
  const OpInfo& op = all_ops().op(StateSummary::kName);
  const auto text = [&](std::string_view problem) {
    return op.text(op.parse(parse_params(problem, ' ')), false);
  };
  EXPECT_EQ(text("T=8 D=4 inclusive=yes"), text("T=8 D=4"));
  EXPECT_NE(text("T=8 D=4 gate=g inclusive=yes"), text("T=8 D=4 gate=g"));
  EXPECT_THROW(op.parse(parse_params("T=8 D=4 H=3 Hkv=2", ' ')), InvalidArgument);
}

TEST(StateSummaryCase, ComesFromAFile) {
  TensorMap tensors;
  tensors.emplace("k", filled({1, 5, 2, 3}, 1));
  tensors.emplace("v", filled({1, 5, 2, 2}, 1));
  tensors.emplace("gv", filled({1, 5, 4, 2}, -1));
  const OpInfo& op = all_ops().op(StateSummary::kName);
  const auto made = op.bind_case(tensors, {{"inclusive", "true"}}, cpu_device());
  EXPECT_EQ(
      op.text(made->problem(), false),
      op.text(op.parse(parse_params("T=5 H=4 Hkv=2 K=3 V=2 gate=gv inclusive=yes aligned=no", ' ')),
              false));
  EXPECT_EQ(output_of(*made, "final_state").shape, Extents({1, 4, 3, 2}));
  EXPECT_EQ(output_of(*made, "gv_sum").shape, Extents({1, 4, 2}));
}

TEST(StateFoldArgs, AreChecked) {
  using Args = StateFold::Args;
  std::vector<std::int32_t> indices{0, 1, 2, 3};
  const auto refusal = [](const auto& change) {
    return launch_refusal<StateFold>("F=2 M=3 L=4 H=2 D=8 h0=yes", change);
  };
  const auto index = [&](std::int64_t count) { return ConstTensorView(indices.data(), {count}); };
  EXPECT_EQ(refusal([](Args&) {}), "");
  EXPECT_EQ(refusal([&](Args& args) { args.fold_order = index(4); }),
            "state_fold: fold_order: [3] is 3, expected 0 .. 2");
  EXPECT_THAT(refusal([&](Args& args) { args.fold_offsets = index(3); }),
              HasSubstr("state_fold: fold_offsets"));
  EXPECT_EQ(refusal([&](Args& args) { args.initial_slots.reset(); }),
            "state_fold: initial_slots: not given, expected with initial_state");
  indices[1] = 2;
  EXPECT_THAT(refusal([&](Args& args) { args.initial_slots = index(2); }),
              HasSubstr("state_fold: initial_slots: [1] is 2"));
}

TEST(StateFoldProblem, HasTargetsAndSummariesWhereItFolds) {
  const OpInfo& op = all_ops().op(StateFold::kName);
  EXPECT_THROW(op.parse(parse_params("F=0 M=3 L=1 D=8", ' ')), InvalidArgument);
  EXPECT_THROW(op.parse(parse_params("F=1 M=0 L=1 D=8", ' ')), InvalidArgument);
}

}  // namespace
}  // namespace attune::test
