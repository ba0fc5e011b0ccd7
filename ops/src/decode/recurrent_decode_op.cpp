// recurrent_decode as an op: its problems and cases.
#include <algorithm>
#include <vector>

#include <attune/core/operand_case.hpp>
#include <attune/ops/lightning_decode.hpp>

#include "decode/decode_rules.hpp"
#include "operands/rows_layout.hpp"

namespace attune::ops {
namespace {

void check_sizes(const RecurrentDecodeProblem& p) {
  constexpr std::string_view kOp = RecurrentDecode::kName;
  check_problem_sizes(operand_table<RecurrentDecode>(), &p);
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

std::unique_ptr<Case> case_of_file(std::string_view op, std::vector<std::string> known,
                                   bool needs_constant_decay, const TensorMap& tensors,
                                   const Attributes& attributes, const Device& device) {
  const FileInputs file(op, tensors, attributes, known);
  DecodeCall call;
  call.rules.name = op;
  call.args.gamma = decay_of_file(op, file, needs_constant_decay);
  call.rules.scale = file.number("scale");
  return file_case(call.rules, file, device, call.args);
}

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
  return operand_bytes(operand_table<RecurrentDecode>(), &problem, element_types(problem));
}

double RecurrentDecode::flops(const Problem& problem) {
  return 4 * static_cast<double>(problem.B) * static_cast<double>(problem.H) *
         static_cast<double>(problem.K) * static_cast<double>(problem.V);
}

void RecurrentDecode::check_args(const Problem& problem, const Args& args) {
  DecodeRules rules;
  rules.allow_tf32 = problem.tf32;
  require_planned<RecurrentDecode>(problem, problem_of_canonical(rules, args));
}

std::unique_ptr<Case> RecurrentDecode::make_case(const Problem& problem, const Device& device,
                                                 std::uint64_t seed) {
  DecodeRules rules;
  rules.allow_tf32 = problem.tf32;
  return random_case(rules, problem, device, seed);
}

std::unique_ptr<Case> RecurrentDecode::bind_case(const TensorMap& tensors,
                                                 const Attributes& attributes,
                                                 const Device& device) {
  return case_of_file(kName, input_file_names<RecurrentDecode>(), false, tensors, attributes,
                      device);
}

std::unique_ptr<Case> LightningDecode::bind_case(const TensorMap& tensors,
                                                 const Attributes& attributes,
                                                 const Device& device) {
  return case_of_file(kName, input_file_names<RecurrentDecode>({"g", "gk", "gv"}), true, tensors,
                      attributes, device);
}

}  // namespace attune::ops
