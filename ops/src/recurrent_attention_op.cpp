// Both passes of recurrent_attention as ops, but for their cases.
#include <algorithm>
#include <initializer_list>

#include <attune/ops/recurrent_attention_op.hpp>

#include "attention_call.hpp"
#include "input_rules.hpp"
#include "problem_rules.hpp"
#include "rows_layout.hpp"

namespace attune::ops {
namespace {

using Problem = RecurrentAttentionProblem;

/// Factors of formulas, which are all in double: sizes are exact in it up to 2^53.
struct Sizes {
  explicit Sizes(const Problem& p)
      : tokens(double(p.B) * double(p.T)),
        heads(double(p.H)),
        kv_heads(double(p.Hkv)),
        keys(double(p.K)),
        values(double(p.V)),
        states(double(p.sequences()) * heads * keys * values),
        width(static_cast<double>(size_of(p.dtype))) {}

  double q() const { return tokens * heads * keys * width; }
  double k() const { return tokens * kv_heads * keys * width; }
  double v() const { return tokens * kv_heads * values * width; }
  double o() const { return tokens * heads * values * width; }

  double tokens, heads, kv_heads, keys, values, states, width;
};

/// Bytes of all gates when g, gk and gv have elements of `width` bytes.
double gate_bytes(const Problem& p, double width) {
  const Sizes n(p);
  const auto given = [&](Gate gate, double elements) {
    return (p.gates & gate) != 0 ? elements : 0.0;
  };
  return width * n.tokens * n.heads *
             (given(kGateG, 1) + given(kGateGk, n.keys) + given(kGateGv, n.values)) +
         4 * given(kGateGamma, n.heads);
}

double cu_seqlens_bytes(const Problem& p) { return p.N > 0 ? 8 * double(p.N + 1) : 0.0; }

void check_sizes(const Problem& p) {
  constexpr std::string_view kOp = RecurrentAttention::kName;
  require(kOp, p.B >= 0, "B", p.B, "at least 0");
  require(kOp, p.T >= 0, "T", p.T, "at least 0");
  require(kOp, p.H >= 1, "H", p.H, "at least 1");
  require(kOp, p.Hkv >= 1 && p.H % p.Hkv == 0, "Hkv", p.Hkv, "a divisor of H");
  require(kOp, p.K >= 1, "K", p.K, "at least 1");
  require(kOp, p.V >= 1, "V", p.V, "at least 1");
  require(kOp, p.N >= 0, "N", p.N, "at least 0");
  require(kOp, p.N == 0 || p.B == 1, "B", p.B, "1 with N packed sequences");
  require(kOp, fits_memory({p.B, p.T, p.H, p.K}) && fits_memory({p.B, p.T, p.H, p.V}), "T", p.T,
          "tensors of at most 2^63 - 1 bytes");
  require(kOp, fits_memory({p.sequences(), p.H, p.K, p.V}), "K", p.K,
          "states of at most 2^63 - 1 bytes");
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
  complete(small);
  return small;
}

double RecurrentAttention::bytes(const Problem& problem) {
  const Sizes n(problem);
  const double states = (problem.h0 ? 4 * n.states : 0) + (problem.ht ? 4 * n.states : 0);
  return n.q() + n.k() + n.v() + n.o() + gate_bytes(problem, gate_width(problem)) + states +
         cu_seqlens_bytes(problem);
}

double RecurrentAttention::flops(const Problem& problem) {
  const Sizes n(problem);
  return 4 * n.tokens * n.heads * n.keys * n.values;
}

void RecurrentAttention::check_args(const Problem& problem, const Args& args) {
  AttentionInputs inputs = inputs_of(args);
  inputs.op = kName;
  inputs.reverse = problem.reverse;
  inputs.allow_tf32 = problem.tf32;
  const AttentionOutputs outputs{.o = &args.o, .final_state = pointer_to(args.final_state)};
  require_planned<RecurrentAttention>(problem, check_forward(inputs, outputs, Look::kAll).problem);
}

double RecurrentAttentionBackward::bytes(const Problem& problem) {
  const Sizes n(problem);
  const double states = (problem.h0 ? 8 * n.states : 0) + (problem.ht ? 4 * n.states : 0);
  return 2 * (n.q() + n.k() + n.v()) + (problem.d_o ? n.o() : 0) +
         gate_bytes(problem, gate_width(problem)) + gate_bytes(problem, 4) + states +
         cu_seqlens_bytes(problem);
}

double RecurrentAttentionBackward::flops(const Problem& problem) {
  return 3 * RecurrentAttention::flops(problem);
}

void RecurrentAttentionBackward::check_args(const Problem& problem, const Args& args) {
  AttentionInputs inputs = inputs_of(args);
  inputs.op = kName;
  inputs.reverse = problem.reverse;
  inputs.allow_tf32 = problem.tf32;
  const AttentionOutputGradients gradients{.d_o = pointer_to(args.d_o),
                                           .dfinal_state = pointer_to(args.dfinal_state)};
  const AttentionGradientOutputs outputs{.dq = &args.dq,
                                         .dk = &args.dk,
                                         .dv = &args.dv,
                                         .dg = pointer_to(args.dg),
                                         .dgamma = pointer_to(args.dgamma),
                                         .dgk = pointer_to(args.dgk),
                                         .dgv = pointer_to(args.dgv),
                                         .dinitial_state = pointer_to(args.dinitial_state)};
  require_planned<RecurrentAttentionBackward>(
      problem, check_backward(inputs, gradients, outputs, Look::kAll).problem);
}

}  // namespace attune::ops
