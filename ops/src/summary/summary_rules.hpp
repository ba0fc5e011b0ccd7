// What the operands of state_summary and of state_fold do not say.
#pragma once

#include <attune/core/operand_check.hpp>
#include <attune/ops/state_fold_op.hpp>
#include <attune/ops/state_summary_op.hpp>

#include "operands/problem_rules.hpp"

namespace attune::ops {

struct SummaryRules : OperandRules<StateSummary> {
  std::int64_t heads = 0;  // 0: those of the tensors
  std::optional<double> scale = {};
  bool reverse = false;
  bool inclusive = false;
  bool allow_tf32 = false;

  static SummaryRules of(const Problem& problem) {
    SummaryRules rules;
    rules.heads = problem.H;
    rules.reverse = problem.reverse;
    rules.inclusive = problem.inclusive;
    rules.allow_tf32 = problem.tf32;
    return rules;
  }

  void begin(OperandCheck& check, const Args& args) const;
  void check_inputs(OperandCheck& check, const Args& args) const;
  void complete(const OperandCheck& check, const Args& args, bool outputs, Problem& problem) const;
  void lower(const OperandCheck& check, Args& args) const;

  Storage storage(const Problem& problem) const { return storage_of<StateSummary>(problem); }
  Tensor random_indices(const OperandInfo& operand, const Problem& problem,
                        RandomValues& random) const;
};

struct FoldRules : OperandRules<StateFold> {
  void check_inputs(OperandCheck& check, const Args& args) const;
  Tensor random_indices(const OperandInfo& operand, const Problem& problem,
                        RandomValues& random) const;
};

}  // namespace attune::ops
