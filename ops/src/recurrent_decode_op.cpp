// recurrent_decode as an op, but for its cases.
#include <algorithm>

#include <attune/ops/recurrent_decode_op.hpp>

#include "decode_call.hpp"
#include "input_rules.hpp"
#include "problem_rules.hpp"
#include "rows_layout.hpp"

namespace attune::ops {
namespace {

void check_sizes(const RecurrentDecodeProblem& p) {
  constexpr std::string_view kOp = RecurrentDecode::kName;
  require(kOp, p.B >= 0, "B", p.B, "at least 0");
  require(kOp, p.H >= 1, "H", p.H, "at least 1");
  require(kOp, p.Hkv >= 1 && p.H % p.Hkv == 0, "Hkv", p.Hkv, "a divisor of H");
  require(kOp, p.K >= 1, "K", p.K, "at least 1");
  require(kOp, p.V >= 1, "V", p.V, "at least 1");
  require(kOp, p.S >= 0, "S", p.S, "at least 0");
  require(kOp, p.slots || p.S >= p.B, "S", p.S, "at least B without slot indices");
  require(kOp, p.layout != Layout::kBhtd, "layout", static_cast<std::int64_t>(p.layout),
          "bthd or strided");
  require(kOp, fits_memory({p.B, p.H, p.K}) && fits_memory({p.B, p.H, p.V}), "B", p.B,
          "tensors of at most 2^63 - 1 bytes");
  require(kOp, fits_memory({p.S, p.H, p.K, p.V}), "S", p.S, "a pool of at most 2^63 - 1 bytes");
}

/// The one spelling of layouts that are the same in memory.
void complete_layout(RecurrentDecodeProblem& p) {
  if (p.B == 0 && p.S == 0) {
    p.layout = Layout::kBthd;
    p.aligned = true;
  }
  if (p.layout == Layout::kStrided) return;
  RowsLayout rows;
  const auto width = static_cast<std::int64_t>(size_of(p.dtype));
  const bool several = p.B > 1 || (p.B == 1 && p.H > 1);
  rows.add_expected(several, p.K * width);
  rows.add_expected(several, p.V * width);
  rows.add_expected(p.S > 1 || (p.S == 1 && (p.H > 1 || p.K > 1)), p.V * 4);
  p.aligned = p.aligned && rows.aligned();
}

constexpr std::int64_t kReducedRows = 5;

}  // namespace

Params RecurrentDecode::expand(Params params) { return expand_channels(kName, std::move(params)); }

void RecurrentDecode::complete(Problem& problem) {
  if (problem.Hkv == 0) problem.Hkv = problem.H;
  if (problem.S == 0) problem.S = problem.B;
  check_sizes(problem);
  complete_types(kName, problem);
  complete_layout(problem);
}

RecurrentDecode::Problem RecurrentDecode::reduced(const Problem& problem) {
  Problem small = problem;
  complete(small);
  const std::int64_t group = small.H / small.Hkv;
  small.B = std::min(problem.B, kReducedRows);
  small.Hkv = std::min<std::int64_t>(small.Hkv, 2);
  small.H = small.Hkv * group;
  // One slot too few leaves a row of padding.
  const std::int64_t slots = problem.slots && small.B > 1 ? small.B - 1 : small.B;
  small.S = std::min(small.S, slots);
  complete(small);
  return small;
}

double RecurrentDecode::bytes(const Problem& problem) {
  const auto rows = static_cast<double>(problem.B);
  const auto heads = static_cast<double>(problem.H);
  const auto kv_heads = static_cast<double>(problem.Hkv);
  const auto keys = static_cast<double>(problem.K);
  const auto values = static_cast<double>(problem.V);
  const auto width = static_cast<double>(size_of(problem.dtype));
  const auto given = [&](Gate gate, double elements) {
    return (problem.gates & gate) != 0 ? elements : 0.0;
  };
  const double gates = gate_width(problem) * rows * heads *
                           (given(kGateG, 1) + given(kGateGk, keys) + given(kGateGv, values)) +
                       4 * given(kGateGamma, heads);
  const double states =
      2 * 4 * std::min(rows, static_cast<double>(problem.S)) * heads * keys * values;
  return width * rows * (heads + kv_heads) * (keys + values) + gates + states +
         (problem.slots ? 8 * rows : 0);
}

double RecurrentDecode::flops(const Problem& problem) {
  return 4 * static_cast<double>(problem.B) * static_cast<double>(problem.H) *
         static_cast<double>(problem.K) * static_cast<double>(problem.V);
}

void RecurrentDecode::check_args(const Problem& problem, const Args& args) {
  DecodeInputs inputs = inputs_of(args);
  inputs.allow_tf32 = problem.tf32;
  require_planned<RecurrentDecode>(problem, check_decode(inputs, &args.o, Look::kAll));
}

}  // namespace attune::ops
