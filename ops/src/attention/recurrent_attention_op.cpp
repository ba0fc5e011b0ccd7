// Both passes of recurrent_attention as ops, but for their cases.
#include <algorithm>
#include <cmath>

#include <attune/ops/recurrent_attention_op.hpp>

#include "attention/attention_rules.hpp"
#include "operands/rows_layout.hpp"

namespace attune::ops {
namespace {

using Problem = RecurrentAttentionProblem;

void check_sizes(const Problem& p) {
  constexpr std::string_view kOp = RecurrentAttention::kName;
  check_problem_sizes(operand_table<RecurrentAttention>(), &p);
  require(kOp, p.N == 0 || p.B == 1, "B", p.B, "1 with N packed sequences");
  require(kOp, fits_memory({p.B, p.T, p.H, p.K}) && fits_memory({p.B, p.T, p.H, p.V}), "T", p.T,
          "tensors of at most 2^63 - 1 bytes");
  require(kOp, fits_memory({p.sequences(), p.H, p.K, p.V}), "K", p.K,
          "states of at most 2^63 - 1 bytes");
}

/// The rules of states, and the one spelling of what makes no difference.
void complete_states(Problem& p) {
  constexpr std::string_view kOp = RecurrentAttention::kName;
  require(kOp, !p.pool || !p.h0, "h0", p.h0, "no with a pool");
  require(kOp, !p.pool || !p.ht, "ht", p.ht, "no with a pool");
  require(kOp, p.pool || !p.initial_slots, "initial_slots", p.initial_slots, "no without a pool");
  require(kOp, p.pool || p.snapshot_every == 0, "snapshot_every", p.snapshot_every,
          "0 without a pool");
  require(kOp, p.snapshot_every >= 0 && p.snapshot_every % 64 == 0, "snapshot_every",
          p.snapshot_every, "a multiple of 64");
  require(kOp, is_floating(p.state_dtype), "state", static_cast<std::int64_t>(p.state_dtype),
          "f32, f16 or bf16");
  if (!p.reads_states() && !p.writes_states()) p.state_dtype = DType::kF32;
  if (p.state_dtype == DType::kF32 || !p.writes_states()) {
    p.rounding = StateRounding::Kind::kNearest;
  }
}

/// The one spelling of layouts that are the same in memory.
void complete_layout(Problem& p) {
  const bool several_rows = p.B > 1 || p.T > 1 || p.H > 1;
  if (p.B == 0 || p.T == 0) {
    p.layout = Layout::kBthd;
    p.aligned = true;
  } else if (!several_rows || (p.layout == Layout::kBhtd && (p.T == 1 || p.H == 1))) {
    p.layout = Layout::kBthd;
  }
  if (p.layout == Layout::kStrided) return;
  RowsLayout rows;
  const auto width = static_cast<std::int64_t>(size_of(p.dtype));
  rows.add_expected(several_rows && p.B > 0 && p.T > 0, p.K * width);
  rows.add_expected(several_rows && p.B > 0 && p.T > 0, p.V * width);
  p.aligned = p.aligned && rows.aligned();
}

constexpr std::int64_t kReducedTokens = 95;  // past one edge of 64, and no multiple of any chunk

}  // namespace

Params RecurrentAttention::expand(Params params) {
  return expand_channels(kName, std::move(params));
}

void RecurrentAttention::complete(Problem& problem) {
  if (problem.Hkv == 0) problem.Hkv = problem.H;
  check_sizes(problem);
  require(kName, problem.d_o || problem.ht, "do", 0, "yes when there is no ht");
  complete_types(kName, problem);
  complete_states(problem);
  complete_layout(problem);
}

Problem RecurrentAttention::reduced(const Problem& problem) {
  Problem small = problem;
  complete(small);
  const std::int64_t group = small.H / small.Hkv;
  small.B = std::min<std::int64_t>(problem.B, 2);
  small.N = std::min<std::int64_t>(problem.N, 3);
  small.Hkv = std::min<std::int64_t>(small.Hkv, 2);
  small.H = small.Hkv * group;
  small.T = std::min(problem.T, kReducedTokens);
  if (small.T == 64) --small.T;
  small.snapshot_every = std::min<std::int64_t>(small.snapshot_every, 64);
  complete(small);
  return small;
}

double RecurrentAttention::bytes(const Problem& problem) {
  double bytes =
      operand_bytes(operand_table<RecurrentAttention>(), &problem, element_types(problem));
  if (!problem.pool) return bytes;
  // Each sequence reads a slot and writes one, and one for each snapshot.
  const double every = static_cast<double>(problem.snapshot_every);
  const double tokens = static_cast<double>(problem.B) * static_cast<double>(problem.T);
  const double slots = 2 * static_cast<double>(problem.sequences()) +
                       (problem.snapshot_every > 0 ? std::floor(tokens / every) : 0);
  return bytes + slots * static_cast<double>(problem.H) * static_cast<double>(problem.K) *
                     static_cast<double>(problem.V) *
                     static_cast<double>(size_of(problem.state_dtype));
}

double RecurrentAttention::flops(const Problem& problem) {
  return 4 * double(problem.B) * double(problem.T) * double(problem.H) * double(problem.K) *
         double(problem.V);
}

double RecurrentAttentionBackward::bytes(const Problem& problem) {
  return operand_bytes(operand_table<RecurrentAttentionBackward>(), &problem,
                       element_types(problem));
}

double RecurrentAttentionBackward::flops(const Problem& problem) {
  return 3 * RecurrentAttention::flops(problem);
}

namespace {

template <class Op>
void check_planned(const Problem& planned, const typename Op::Args& args) {
  require_planned<Op>(planned, problem_of_canonical(AttentionRules<Op>::of(planned), args));
}

}  // namespace

void RecurrentAttention::check_args(const Problem& problem, const Args& args) {
  check_planned<RecurrentAttention>(problem, args);
}

void RecurrentAttentionBackward::check_args(const Problem& problem, const Args& args) {
  check_planned<RecurrentAttentionBackward>(problem, args);
}

}  // namespace attune::ops
