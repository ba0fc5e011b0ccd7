// state_fold as an op: its problems, rules and cases.
#include <algorithm>
#include <limits>
#include <vector>

#include "operands/host_indices.hpp"
#include "summary/summary_rules.hpp"

namespace attune::ops {
namespace {

constexpr int kF = size_at<StateFold>("F");
constexpr int kM = size_at<StateFold>("M");
constexpr int kL = size_at<StateFold>("L");

/// Throws InvalidArgument for an index in host memory that is not less than `end`, or, where there
/// is a least, less than that.
void check_each(const OperandCheck& check, std::string_view name, const ConstTensorView& indices,
                std::int64_t least, std::int64_t end) {
  if (check.level() != CheckLevel::kMemory || indices.device != DeviceId{}) return;
  for (std::int64_t i = 0; i < indices.size(0); ++i) {
    const std::int64_t index = index_at(indices, i);
    if (index >= least && index < end) continue;
    check.refuse(name, "[", i, "] is ", index, ", expected ", least, " .. ", end - 1);
  }
}

}  // namespace

void FoldRules::check_inputs(OperandCheck& check, const Args& args) const {
  if (args.initial_state && !args.initial_slots) {
    check.refuse("initial_slots", "not given, expected with initial_state");
  }
  if (check.level() == CheckLevel::kMemory && args.fold_offsets.device == DeviceId{}) {
    check_cu_seqlens(check, "fold_offsets", args.fold_offsets,
                     {.tokens = check.size(kL), .may_be_padded = false});
  }
  check_each(check, "fold_order", args.fold_order, 0, check.size(kM));
  if (!args.initial_slots) return;
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();
  check_each(check, "initial_slots", *args.initial_slots, kNone, check.size(kF));
}

Tensor FoldRules::random_indices(const OperandInfo& operand, const Problem& problem,
                                 RandomValues&) const {
  std::vector<std::int32_t> values;
  const auto fill = [&](std::int64_t count, const auto& value) {
    for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<std::int32_t>(value(i)));
  };
  if (operand.name == "initial_slots") {
    fill(problem.F, [&](std::int64_t f) { return f % 3 == 2 ? -1 : problem.F - 1 - f; });
  } else if (operand.name == "fold_offsets") {
    // Targets have ever more summaries, as ranks have: about f in proportion to the last one's.
    const std::int64_t last = problem.F * problem.F;
    fill(problem.F + 1, [&](std::int64_t f) { return f == 0 ? 0 : problem.L * f * f / last; });
  } else {
    fill(problem.L, [&](std::int64_t i) { return i % problem.M; });
  }
  return Tensor::of(values, {static_cast<std::int64_t>(values.size())});
}

Params StateFold::expand(Params params) { return expand_channels(kName, std::move(params)); }

void StateFold::complete(Problem& problem) {
  check_problem_sizes(operand_table<StateFold>(), &problem);
  require(kName, problem.L == 0 || problem.F > 0, "L", problem.L, "0 without targets");
  require(kName, problem.L == 0 || problem.M > 0, "L", problem.L, "0 without summaries");
  require(kName, fits_memory({problem.M, problem.H, problem.K, problem.V}), "M", problem.M,
          "states of at most 2^63 - 1 bytes");
  require(kName, fits_memory({problem.F, problem.H, problem.K, problem.V}), "F", problem.F,
          "states of at most 2^63 - 1 bytes");
}

StateFoldProblem StateFold::reduced(const Problem& problem) {
  Problem small = problem;
  small.F = std::min<std::int64_t>(problem.F, 4);
  small.M = std::min<std::int64_t>(problem.M, 5);
  small.L = small.F == 0 ? 0 : std::min<std::int64_t>(problem.L, 9);
  small.H = std::min<std::int64_t>(problem.H, 2);
  return small;
}

double StateFold::flops(const Problem& problem) {
  return 2.0 * static_cast<double>(problem.L) * static_cast<double>(problem.H) *
         static_cast<double>(problem.K) * static_cast<double>(problem.V);
}

void StateFold::check_args(const Problem& problem, const Args& args) {
  attune::require_planned<StateFold>(problem, problem_of_canonical(FoldRules(), args));
}

std::unique_ptr<Case> StateFold::make_case(const Problem& problem, const Device& device,
                                           std::uint64_t seed) {
  return random_case(FoldRules(), problem, device, seed);
}

std::unique_ptr<Case> StateFold::bind_case(const TensorMap& tensors, const Attributes& attributes,
                                           const Device& device) {
  const FileInputs file(kName, tensors, attributes, input_file_names<StateFold>());
  return file_case(FoldRules(), file, device);
}

}  // namespace attune::ops
