// state_summary as an op: its problems, rules and cases.
#include <attune/core/operand_case.hpp>

#include "attention/attention_rules.hpp"
#include "operands/constant_decay.hpp"
#include "operands/host_indices.hpp"
#include "operands/rows_layout.hpp"
#include "summary/summary_rules.hpp"

namespace attune::ops {
namespace {

using Problem = StateSummaryProblem;
using Args = StateSummaryArgs;

constexpr int kB = size_at<StateSummary>("B");
constexpr int kT = size_at<StateSummary>("T");
constexpr int kH = size_at<StateSummary>("H");
constexpr int kK = size_at<StateSummary>("K");
constexpr int kV = size_at<StateSummary>("V");
constexpr int kN = size_at<StateSummary>("N");

/// What a problem and its walk have in common.
template <class To, class From>
void copy_shared(const From& from, To& to) {
  to.B = from.B;
  to.T = from.T;
  to.H = from.H;
  to.Hkv = from.Hkv;
  to.K = from.K;
  to.V = from.V;
  to.N = from.N;
  to.dtype = from.dtype;
  to.gates = from.gates;
  to.gate_dtype = from.gate_dtype;
  to.h0 = from.h0;
  to.reverse = from.reverse;
  to.layout = from.layout;
  to.aligned = from.aligned;
  to.tf32 = from.tf32;
}

/// Heads as the tensors have them, while final_state is not there: those of the gates, else k's.
std::int64_t heads_of(const Args& args) {
  const auto from_end = [](const ConstTensorView& view, int dim) {
    return view.rank() > dim ? view.size(view.rank() - 1 - dim) : 1;
  };
  if (args.g) return from_end(*args.g, 0);
  if (args.gk) return from_end(*args.gk, 1);
  if (args.gv) return from_end(*args.gv, 1);
  if (args.gamma.values.rank() > 0) return from_end(args.gamma.values, 0);
  if (args.initial_state) return from_end(*args.initial_state, 2);
  return from_end(args.k, 1);
}

}  // namespace

RecurrentAttentionProblem StateSummaryProblem::walk() const {
  RecurrentAttentionProblem problem;
  copy_shared(*this, problem);
  problem.ht = true;
  return problem;
}

void SummaryRules::begin(OperandCheck& check, const Args& args) const {
  const std::int64_t given = heads > 0 ? heads : heads_of(args);
  if (args.k.rank() >= 2) {
    const std::int64_t kv_heads = args.k.size(args.k.rank() - 2);
    if (kv_heads < 1 || given < 1 || given % kv_heads != 0) {
      check.refuse("k", kv_heads, " heads, expected a divisor of ", given);
    }
  }
  check.set_size(kH, given);
  if (!args.cu_seqlens) return;
  const ConstTensorView& bounds = *args.cu_seqlens;
  check.shape("cu_seqlens", bounds, {"N + 1"});
  check.index_dtype("cu_seqlens", bounds);
  if (bounds.size(0) < 2) {
    check.refuse("cu_seqlens", "shape ", bounds.shape, ", expected at least 2 values");
  }
  check.set_size(kN, bounds.size(0) - 1);
  check.may_leave_out(kB, " with cu_seqlens");
  if (args.k.rank() == 4 && args.k.size(0) != 1) {
    check.refuse("k", "shape ", args.k.shape, ", expected B = 1 with cu_seqlens");
  }
}

void SummaryRules::check_inputs(OperandCheck& check, const Args& args) const {
  const std::int64_t sequences = args.cu_seqlens ? check.size(kN) : check.size(kB);
  if (!fits_memory({sequences, check.size(kH), check.size(kK), check.size(kV)})) {
    check.refuse("v", "shape ", args.v.shape, " makes states of more than 2^63 - 1 bytes");
  }
  check_layer(check, args.gamma);
  check_scale(check, check.form() == ArgsForm::kCanonical ? args.scale : scale);
  if (!args.cu_seqlens || check.level() != CheckLevel::kMemory) return;
  if (args.cu_seqlens->device != DeviceId{}) return;
  check_cu_seqlens(check, "cu_seqlens", *args.cu_seqlens,
                   {.tokens = check.size(kT), .may_be_padded = true});
}

void SummaryRules::complete(const OperandCheck& check, const Args& args, bool outputs,
                            Problem& problem) const {
  if (outputs && args.gv && !args.gv_sum) check.refuse("gv_sum", "not given, expected with gv");
  if (args.gamma.source != ConstantDecay::Source::kNone) problem.gates |= kGateGamma;
  problem.reverse = reverse;
  problem.inclusive = inclusive;
  problem.tf32 = allow_tf32 && problem.dtype == DType::kF32;
  const RowsLayout layout =
      layout_of(operand_table<StateSummary>(), check, &RowsLayout::add_tokens, outputs, false);
  problem.layout = layout.layout();
  problem.aligned = layout.aligned();
}

void SummaryRules::lower(const OperandCheck&, Args& args) const { args.scale = scale.value_or(1); }

Tensor SummaryRules::random_indices(const OperandInfo& operand, const Problem& problem,
                                    RandomValues& random) const {
  return AttentionRules<RecurrentAttention>().random_indices(operand, problem.walk(), random);
}

Params StateSummary::expand(Params params) { return expand_channels(kName, std::move(params)); }

void StateSummary::complete(Problem& problem) {
  if (problem.Hkv == 0) problem.Hkv = problem.H;
  check_problem_sizes(operand_table<StateSummary>(), &problem);
  complete_types(kName, problem);
  RecurrentAttentionProblem walk = problem.walk();
  RecurrentAttention::complete(walk);
  copy_shared(walk, problem);
  if (problem.gates == 0) problem.inclusive = false;
}

Problem StateSummary::reduced(const Problem& problem) {
  Problem small = problem;
  copy_shared(RecurrentAttention::reduced(problem.walk()), small);
  return small;
}

double StateSummary::bytes(const Problem& problem) {
  return operand_bytes(operand_table<StateSummary>(), &problem, element_types(problem));
}

double StateSummary::flops(const Problem& problem) {
  return RecurrentAttention::flops(problem.walk()) / 2;
}

void StateSummary::check_args(const Problem& problem, const Args& args) {
  require_planned<StateSummary>(problem, problem_of_canonical(SummaryRules::of(problem), args));
}

std::unique_ptr<Case> StateSummary::make_case(const Problem& problem, const Device& device,
                                              std::uint64_t seed) {
  return random_case(SummaryRules::of(problem), problem, device, seed);
}

std::unique_ptr<Case> StateSummary::bind_case(const TensorMap& tensors,
                                              const Attributes& attributes, const Device& device) {
  const FileInputs file(kName, tensors, attributes, input_file_names<StateSummary>());
  SummaryRules rules;
  rules.heads = file.integer("heads").value_or(0);
  rules.scale = file.number("scale");
  rules.reverse = file.flag("reverse");
  rules.inclusive = file.flag("inclusive");
  Args args;
  args.gamma = decay_of_file(kName, file, false);
  return file_case(rules, file, device, args);
}

}  // namespace attune::ops
