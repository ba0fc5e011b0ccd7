// state_fold: the states between runs of tokens, from the summaries of those runs
// (state_summary_op.hpp).
// For each of F targets, from a state or from zero, summaries are applied in an order that is
// given:
//
//   S = initial_slots[f] < 0 ? 0 : initial_state[initial_slots[f]]
//   for m in fold_order[fold_offsets[f]] .. fold_order[fold_offsets[f+1] - 1]:
//     S[i,j] = exp(gk_sum[m,i] + gv_sum[m,j]) * S[i,j] + final_state[m,i,j]
//   folded[f] = S
//
// head by head. The order is what makes results the same bits on every run, whoever came first.
//
//   tensor         shape      type      notes
//   final_state    [M,H,K,V]  f32       M summaries; any strides, as all of these
//   gk_sum         [M,H,K]    f32       0 where it is not given
//   gv_sum         [M,H,V]    f32       likewise
//   initial_state  [F,H,K,V]  f32
//   initial_slots  [F]        i32, i64  given exactly when initial_state is
//   fold_offsets   [F+1]      i32, i64  from 0 to L
//   fold_order     [L]        i32, i64  each in 0 .. M-1
//   folded         [F,H,K,V]  f32
//
// A log decay of -inf resets the state exactly. Without decays, and K = V = 1, it sums up in order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>

#include <attune/core/case.hpp>
#include <attune/core/op.hpp>
#include <attune/core/operand_case.hpp>
#include <attune/core/operands.hpp>
#include <attune/core/problem.hpp>
#include <attune/core/tensor.hpp>

namespace attune::ops {

struct StateFoldProblem {
  std::int64_t F = 1;  // >= 0: targets
  std::int64_t M = 0;  // >= 0: summaries
  std::int64_t L = 0;  // >= 0: folds of all targets together
  std::int64_t H = 1;  // >= 1
  std::int64_t K = 0;  // >= 1
  std::int64_t V = 0;  // >= 1
  bool gk_sum = true;
  bool gv_sum = false;
  bool h0 = false;  // some targets start from a state
  friend bool operator==(const StateFoldProblem&, const StateFoldProblem&) = default;
};

struct StateFoldArgs {
  ConstTensorView final_state;
  std::optional<ConstTensorView> gk_sum, gv_sum, initial_state, initial_slots;
  ConstTensorView fold_offsets, fold_order;
  TensorView folded;
};

struct StateFold : OperandOp<StateFold> {
  static constexpr std::string_view kName = "state_fold";
  static constexpr std::string_view kSummary =
      "states between runs of tokens, from their summaries";
  using Problem = StateFoldProblem;
  using Args = StateFoldArgs;

  static constexpr auto fields() {
    return std::tuple{field("F", &Problem::F, Bucket::kPow2),
                      field("M", &Problem::M, Bucket::kPow2),
                      field("L", &Problem::L, Bucket::kPow2),
                      field("H", &Problem::H),
                      field("K", &Problem::K),
                      field("V", &Problem::V),
                      flag("gk_sum", &Problem::gk_sum).feature(),
                      flag("gv_sum", &Problem::gv_sum).feature(),
                      flag("h0", &Problem::h0).feature()};
  }
  static constexpr auto operands() {
    return std::tuple{
        input("final_state", &Args::final_state, dims("M", "H", "K", "V")).f32(),
        gate("gk_sum", &Args::gk_sum, dims("M", "H", "K")).f32().given_by(&Problem::gk_sum),
        gate("gv_sum", &Args::gv_sum, dims("M", "H", "V")).f32().given_by(&Problem::gv_sum),
        input("initial_state", &Args::initial_state, dims("F", "H", "K", "V"))
            .f32()
            .given_by(&Problem::h0),
        index("initial_slots", &Args::initial_slots, dims("F"))
            .only_with("initial_state")
            .given_by(&Problem::h0),
        index("fold_offsets", &Args::fold_offsets, dims("F + 1")),
        index("fold_order", &Args::fold_order, dims("L")),
        output("folded", &Args::folded, dims("F", "H", "K", "V")).f32()};
  }
  static constexpr auto sizes() {
    return std::array{size_rule("H").at_least(1, "at least one head"), size_rule("K").at_least(1),
                      size_rule("V").at_least(1)};
  }
  static Params expand(Params params);     // D = K and V
  static void complete(Problem& problem);  // throws InvalidArgument
  static std::unique_ptr<Case> make_case(const Problem& problem, const Device& device,
                                         std::uint64_t seed);
  static std::unique_ptr<Case> bind_case(const TensorMap& tensors, const Attributes& attributes,
                                         const Device& device);
  static Problem reduced(const Problem& problem);
  static double flops(const Problem& problem);  // 2 K V a fold and head
  static void check_args(const Problem& problem, const Args& args);
};

}  // namespace attune::ops
