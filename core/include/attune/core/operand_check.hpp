// The check of a call against what its op declares (operands.hpp), the problem that it is, and the
// one form in which kernels get its arguments.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <attune/core/call_check.hpp>
#include <attune/core/operand_table.hpp>

namespace attune {

/// As what the arguments of a call are checked.
enum class ArgsForm {
  kCaller,     // as a caller gave them
  kFile,       // the same, and messages name operands as files do
  kCanonical,  // as kernels get them
};

class OperandCheck : public CallCheck {
 public:
  /// `op` as the caller says it.
  OperandCheck(const OperandTable& table, std::string_view op, CheckLevel level, ArgsForm form);

  ArgsForm form() const { return form_; }

  // Throw InvalidArgument. `args` must outlive this object.
  void inputs(const void* args);  // and indices and states
  void outputs(const void* args);

  /// A size, once an operand that names it has been checked.
  std::int64_t size(int at) const { return values_.sizes[static_cast<std::size_t>(at)]; }
  /// Sets a size that is known before.
  void set_size(int at, std::int64_t size) {
    values_.sizes[static_cast<std::size_t>(at)] = size;
    values_.set |= 1U << static_cast<unsigned>(at);
  }
  /// An operand, as it was when inputs or outputs were checked last.
  const ViewRef& view(std::size_t operand) const { return views_[operand]; }

  /// From here on, operands whose first dimension is this size may leave it out, where it is 1.
  /// `when` says in messages why: " with cu_seqlens".
  void may_leave_out(int size, std::string_view when) {
    left_out_ = size;
    left_out_when_ = when;
  }
  /// What messages and cases call an operand.
  std::string_view name_of(int operand) const {
    if (renames_ != 0) return renamed(operand);
    return own_name(table_.operands[static_cast<std::size_t>(operand)]);
  }
  /// The caller gave an operand under the name of another one.
  void rename(int operand, int to) { renamed_[renames_++] = {operand, to}; }

  DType io() const { return io_; }
  DType state() const { return state_; }  // f32 while no state is given
  /// The type and shape of an output that is to be allocated.
  DType output_type(int operand) const;
  Extents output_shape(int operand) const;

  /// Sets what follows from operands: sizes, element types, and which are given.
  template <class Problem>
  void set_problem(Problem& problem) const {
    table_.set_problem(&problem, values_);
    if constexpr (requires { problem.dtype; }) problem.dtype = io_;
    if constexpr (requires { problem.gate_dtype; }) {
      problem.gate_dtype = static_cast<decltype(problem.gate_dtype)>(gate_types_seen());
    }
    if constexpr (requires { problem.state_dtype; }) problem.state_dtype = state_;
  }

  /// Puts back the dimensions that were left out.
  void make_canonical(void* args) const;

 private:
  struct Renamed {
    int operand = 0;
    int to = 0;
  };

  enum class Fit { kNo, kYes, kBadSize };

  std::string_view own_name(const OperandInfo& operand) const {
    return form_ == ArgsForm::kFile ? operand.file_name : operand.name;
  }
  bool is_absent(int size) const { return (absent_ >> static_cast<unsigned>(size) & 1U) != 0; }
  /// How many dimensions an operand has in this call, from `first` on.
  int rank_from(const OperandInfo& operand, int first) const;
  void decide_absent(const OperandInfo& operand, const ViewRef& view, int first);
  std::string_view renamed(int operand) const;
  void check_each(std::uint32_t operands);  // bits
  void check(int at);
  bool is_paired(int at);
  Fit fit_of(int at, const ViewRef& view, int first);
  bool may_be(const SizeInfo& info, std::int64_t is) const;
  [[gnu::cold]] void refuse_shape(int at, const ViewRef& view, int first) const;
  void check_type(int at, const OperandInfo& operand, DType is);
  void check_shared_type(int at, DType is, int& decided_by, DType& decided);
  [[gnu::cold]] void refuse_size(int at, const ViewRef& view, int first) const;
  void check_memory(std::string_view name, const OperandInfo& operand, const ViewRef& view);
  bool may_leave_out(const OperandInfo& operand) const {
    return form_ != ArgsForm::kCanonical && operand.sizes[0] == left_out_;
  }
  std::int64_t size_or_other(int at) const;
  int first_dim(const OperandInfo& operand, const ViewRef& view) const;
  int gate_types_seen() const { return !gates_io_ ? 0 : gates_f32_ ? 2 : 1; }

  const OperandTable& table_;
  ArgsForm form_;
  union {  // not set to zero for each launch
    std::array<ViewRef, kMaxOperands> views_;
  };
  OperandValues values_;
  std::array<std::int8_t, kMaxSizes> set_by_;  // operands
  int io_operand_ = -1;
  DType io_ = DType::kF32;
  int state_operand_ = -1;
  DType state_ = DType::kF32;
  std::uint32_t absent_ = 0;  // bits of sizes whose dimension operands do not have
  bool gates_f32_ = false;
  bool gates_io_ = false;
  bool rows_leave_out_ = false;  // the first operand left out its first dimension
  int left_out_ = -1;
  std::string_view left_out_when_;
  std::array<Renamed, 4> renamed_{};
  std::size_t renames_ = 0;
};

/// What an op adds to what follows from its operands: nothing. An op's own rules derive from it and
/// hide what they change. `Args` is the op's own.
template <class O>
struct OperandRules {
  using Op = O;
  using Args = typename O::Args;
  using Problem = typename O::Problem;

  std::string_view name = O::kName;  // of the op, as the caller says it

  /// Before anything else is checked: other spellings of arguments. Not of canonical ones.
  void respell(OperandCheck&, Args&) const {}
  /// Before the inputs are checked: sizes that are known already.
  void begin(OperandCheck&, const Args&) const {}
  /// After them: what no table can say.
  void check_inputs(OperandCheck&, const Args&) const {}
  /// Completes the problem. `outputs` is false for a plan, whose outputs are not there yet.
  void complete(const OperandCheck&, const Args&, bool outputs, Problem&) const {
    static_cast<void>(outputs);
  }
  /// Completes the arguments, which are valid.
  void lower(const OperandCheck&, Args&) const {}
};

/// A call on its way to a kernel: its inputs are checked when it is made, its outputs, which may be
/// set in between, when it is completed. Throws InvalidArgument.
template <class Rules>
class OperandCall {
 public:
  using Op = typename Rules::Op;
  using Args = typename Op::Args;
  using Problem = typename Op::Problem;

  OperandCall(const Rules& rules, Args& args, CheckLevel level = CheckLevel::kMemory,
              ArgsForm form = ArgsForm::kCaller)
      : rules_(rules), args_(args), check_(operand_table<Op>(), rules.name, level, form) {
    rules_.begin(check_, args_);
    rules_.respell(check_, args_);
    check_.inputs(&args_);
    rules_.check_inputs(check_, args_);
  }
  OperandCall(const OperandCall&) = delete;  // it points into rules and arguments
  OperandCall& operator=(const OperandCall&) = delete;

  const OperandCheck& check() const { return check_; }
  Args& args() { return args_; }
  /// What an output that is to be allocated is like.
  DType output_type(int operand) const { return check_.output_type(operand); }
  Extents output_shape(int operand) const { return check_.output_shape(operand); }

  /// Checks the outputs, makes the arguments canonical, and says which problem this is.
  Problem complete() {
    check_.outputs(&args_);
    const Problem problem = problem_of(rules_, check_, args_, true);
    check_.make_canonical(&args_);
    rules_.lower(check_, args_);
    return problem;
  }
  /// The problem, while there are no outputs.
  Problem without_outputs() const { return problem_of(rules_, check_, args_, false); }

  static Problem problem_of(const Rules& rules, const OperandCheck& check, const Args& args,
                            bool outputs) {
    Problem problem{};
    check.set_problem(problem);
    rules.complete(check, args, outputs, problem);
    return problem;
  }

 private:
  const Rules& rules_;
  Args& args_;
  OperandCheck check_;
};

/// Throws InvalidArgument unless arguments of problem `actual` may be launched by a plan for
/// `planned`.
template <class Op>
void require_planned(const typename Op::Problem& planned, const typename Op::Problem& actual) {
  detail::for_each_field<Op>([&](const auto& f) {
    const auto wanted = static_cast<std::int64_t>(planned.*(f.member));
    const auto given = static_cast<std::int64_t>(actual.*(f.member));
    if (wanted == given) return;
    throw InvalidArgument(str(Op::kName, ": args: ", f.name, " is ", detail::label_text(f, given),
                              ", expected the plan's ", detail::label_text(f, wanted)));
  });
}

/// The problem of arguments in canonical form, checked: what a Plan's launch asks. Throws
/// InvalidArgument.
template <class Rules>
typename Rules::Problem problem_of_canonical(const Rules& rules, const typename Rules::Args& args) {
  using Op = typename Rules::Op;
  OperandCheck check(operand_table<Op>(), rules.name, CheckLevel::kMemory, ArgsForm::kCanonical);
  rules.begin(check, args);
  check.inputs(&args);
  rules.check_inputs(check, args);
  check.outputs(&args);
  return OperandCall<Rules>::problem_of(rules, check, args, true);
}

}  // namespace attune
