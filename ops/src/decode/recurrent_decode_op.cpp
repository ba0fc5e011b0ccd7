// recurrent_decode as an op: its problems and cases.
#include <algorithm>
#include <vector>

#include <attune/core/operand_case.hpp>
#include <attune/ops/lightning_decode.hpp>

#include "decode/decode_rules.hpp"
#include "operands/host_indices.hpp"
#include "operands/rows_layout.hpp"

namespace attune::ops {
namespace {

void check_sizes(const RecurrentDecodeProblem& p) {
  constexpr std::string_view kOp = RecurrentDecode::kName;
  check_problem_sizes(operand_table<RecurrentDecode>(), &p);
  require(kOp, p.T >= 0 && p.T <= kMaxStepTokens, "T", p.T, str("at most ", kMaxStepTokens));
  require(kOp, p.R >= 0 && p.R <= kMaxStepTokens, "R", p.R, str("at most ", kMaxStepTokens));
  require(kOp, !p.kept || p.R == 0, "R", p.R, "none with kept slots");
  require(kOp, p.slots || p.kept || p.S >= p.B, "S", p.S, "at least B without slot indices");
  require(kOp, is_floating(p.state_dtype), "state", static_cast<std::int64_t>(p.state_dtype),
          "f32, f16 or bf16");
  require(kOp, p.layout != Layout::kBhtd, "layout", static_cast<std::int64_t>(p.layout),
          "bthd or strided");
  const std::int64_t tokens = std::max(p.tokens(), p.R);
  require(kOp, fits_memory({p.B, tokens, p.H, p.K}) && fits_memory({p.B, tokens, p.H, p.V}), "B",
          p.B, "tensors of at most 2^63 - 1 bytes");
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
  const bool several = has_several_rows(p);
  rows.add_expected(several, p.K * width);
  rows.add_expected(several, p.V * width);
  rows.add_expected(p.S > 1 || (p.S == 1 && (p.H > 1 || p.K > 1)),
                    p.V * static_cast<std::int64_t>(size_of(p.state_dtype)));
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
  if (const auto seed = file.integer("stochastic_seed")) {
    call.rules.rounding = stochastic(static_cast<std::uint64_t>(*seed));
  }
  return file_case(call.rules, file, device, call.args);
}

}  // namespace

Params RecurrentDecode::expand(Params params) { return expand_channels(kName, std::move(params)); }

void RecurrentDecode::complete(Problem& problem) {
  if (problem.Hkv == 0) problem.Hkv = problem.H;
  if (problem.S == 0) problem.S = problem.kept ? problem.B * problem.tokens() : problem.B;
  if (problem.kept) problem.slots = false;
  if (problem.T == 1) problem.T = 0;
  check_sizes(problem);
  complete_types(kName, problem);
  if (problem.state_dtype == DType::kF32) problem.rounding = StateRounding::Kind::kNearest;
  complete_layout(problem);
}

RecurrentDecode::Problem RecurrentDecode::reduced(const Problem& problem) {
  Problem small = problem;
  complete(small);
  const std::int64_t group = small.H / small.Hkv;
  small.B = std::min(problem.B, kReducedRows);
  small.Hkv = std::min<std::int64_t>(small.Hkv, 2);
  small.H = small.Hkv * group;
  // One slot too few leaves a row of padding, or a state that is not kept.
  const std::int64_t states = small.kept ? small.B * small.tokens() : small.B;
  const bool one_less = (small.slots || small.kept) && states > 1;
  small.S = std::min(small.S, one_less ? states - 1 : states);
  complete(small);
  return small;
}

double RecurrentDecode::bytes(const Problem& problem) {
  const double once_each =
      operand_bytes(operand_table<RecurrentDecode>(), &problem, element_types(problem));
  if (!problem.kept) return once_each;
  // A state is read once and written after each token.
  const double state = static_cast<double>(problem.H) * static_cast<double>(problem.K) *
                       static_cast<double>(problem.V) *
                       static_cast<double>(size_of(problem.state_dtype));
  const std::int64_t written = std::min(problem.S, problem.B * problem.tokens());
  return once_each + state * static_cast<double>(written - std::min(problem.S, problem.B));
}

double RecurrentDecode::flops(const Problem& problem) {
  // Committed tokens are written, and not read.
  const auto tokens = static_cast<double>(4 * problem.tokens() + 2 * problem.R);
  return tokens * static_cast<double>(problem.B) * static_cast<double>(problem.H) *
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
  rules.rounding = {problem.rounding, seed};
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
  return case_of_file(kName,
                      input_file_names<RecurrentDecode>(
                          {"g", "gk", "gv", "committed.g", "committed.gk", "committed.gv"}),
                      true, tensors, attributes, device);
}

namespace {

/// Element (row, token) of [B] or [B, T].
std::int64_t index_of(const ConstTensorView& view, std::int64_t row, std::int64_t token = 0) {
  const std::int64_t columns = view.rank() == 1 ? 1 : view.size(1);
  return index_at(view, row * columns + token);
}

std::int64_t checked(std::string_view name, std::int64_t row, std::int64_t value,
                     std::int64_t most) {
  if (value <= most) return value;
  throw InvalidArgument(str(RecurrentDecode::kName, ": ", name, "[", row, "] is ", value,
                            ", expected less than ", most + 1));
}

constexpr DecodeRow kPadding{.start = -1, .committed = 0};

}  // namespace

DecodeRow decode_row(const RecurrentDecodeProblem& problem, const RecurrentDecodeArgs& args,
                     std::int64_t row) {
  if (args.kept_slots) {
    const std::int64_t accepted =
        checked("accepted", row, index_of(*args.accepted, row), problem.tokens());
    if (accepted < 1) return kPadding;
    const std::int64_t slot = index_of(*args.kept_slots, row, accepted - 1);
    return {.start = checked("kept_slots", row, slot, problem.S - 1), .committed = 0};
  }
  DecodeRow is{.start = row, .committed = 0};
  if (args.slot_indices) {
    is.start = checked("slot_indices", row, index_of(*args.slot_indices, row), problem.S - 1);
  }
  if (args.committed_accepted) {
    is.committed =
        checked("committed.accepted", row, index_of(*args.committed_accepted, row), problem.R);
    if (is.committed < 0) return kPadding;
  }
  return is;
}

std::int64_t kept_slot(const RecurrentDecodeProblem& problem, const RecurrentDecodeArgs& args,
                       std::int64_t row, std::int64_t token) {
  return checked("kept_slots", row, index_of(*args.kept_slots, row, token), problem.S - 1);
}

}  // namespace attune::ops
