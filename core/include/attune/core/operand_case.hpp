// Cases of an op whose operands are declared (operands.hpp): random ones, and from tensor files.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <attune/core/case.hpp>
#include <attune/core/case_tensors.hpp>
#include <attune/core/function_ref.hpp>
#include <attune/core/in_place.hpp>
#include <attune/core/operand_check.hpp>

namespace attune {

/// Relative RMS errors that pass.
struct Tolerances {
  double tensor = 0;
  double gate_gradient = 0;  // gradients of gates are sums that cancel
};

/// f32 products that may be rounded to TF32 have f16's precision, and count as 16-bit.
Tolerances tolerances_of(DType dtype, bool tf32);

/// ||e|| = 0: the RMS that passes.
inline constexpr double kAbsoluteTolerance = 1e-6;

/// The RMS of the terms that make up a gate's gradient: an error of that times the tensor tolerance
/// passes, too. Asked for only where it decides; empty for outputs that are no gate's gradient.
using SummandRms = std::function<double()>;

/// Whether all values of an output on `device` are finite, by its digest.
OutputCheck check_finite(const NamedTensor& output, const Digest& digest, const Device& device);

/// Holds `actual` (host, dense) against `expected`.
OutputCheck check_output(const std::string& name, const Tensor& actual, const Tensor& expected,
                         const Tolerances& tolerances, const SummandRms& summand_rms);

/// Of the values that are finite.
double rms(const std::vector<double>& values);

/// A case over arguments in canonical form.
template <class Op>
class OperandCase : public Case {
 public:
  using Problem = typename Op::Problem;
  using Args = typename Op::Args;

  OperandCase(CaseTensors tensors, const Problem& problem, const Args& args)
      : tensors_(std::move(tensors)), problem_(problem), args_(args) {}

  ProblemRef problem() const final { return ProblemRef::of<Op>(problem_); }
  const void* args() const final { return &args_; }
  void reset(std::byte poison) final { tensors_.reset(poison); }
  std::vector<NamedTensor> outputs() const final { return tensors_.outputs(); }

  std::vector<OutputCheck> compare(const TensorMap& expected) const final {
    std::vector<OutputCheck> checks;
    for (const NamedTensor& output : outputs()) {
      const auto found = expected.find(output.name);
      checks.push_back(found == expected.end() ? finite(output)
                                               : close(output, found->second, expected));
    }
    return checks;
  }

 protected:
  /// What an output that is a gate's gradient sums up.
  virtual SummandRms summand_rms(const NamedTensor&, const TensorMap&) const { return {}; }

  const Problem& the_problem() const { return problem_; }
  const Args& the_args() const { return args_; }
  const Device& device() const { return tensors_.device(); }

 private:
  OutputCheck finite(const NamedTensor& output) const {
    return check_finite(output, digests_of({&output.view, 1}, device()).front(), device());
  }
  OutputCheck close(const NamedTensor& output, const Tensor& to, const TensorMap& expected) const {
    return check_output(output.name, to_host(output.view, device()), to,
                        tolerances(output.view.dtype), summand_rms(output, expected));
  }

  /// Of an output: what the io type allows, and what its own does.
  Tolerances tolerances(DType output) const {
    const DType io = element_types(problem_).io;
    const DType type = io == DType::kF32 && is_floating(output) ? output : io;
    if constexpr (requires { problem_.tf32; }) {
      return tolerances_of(type, problem_.tf32);
    } else {
      return tolerances_of(type, false);
    }
  }

  CaseTensors tensors_;
  Problem problem_;
  Args args_;
};

namespace detail {

using RandomIndices = FunctionRef<Tensor(const OperandInfo&, RandomValues&)>;
using RandomShape = FunctionRef<Extents(const OperandInfo&)>;

/// Sets the inputs of a problem, one after the other, each from its own random stream.
void set_random_inputs(const OperandTable& table, const void* problem, const ElementTypes& types,
                       const Storage& storage, std::uint64_t seed, RandomShape shape,
                       RandomIndices indices, CaseTensors& tensors, void* args);

/// Sets the inputs that a file has.
void set_file_inputs(const OperandTable& table, const FileInputs& file, CaseTensors& tensors,
                     void* args);

/// Adds outputs of the types and shapes that a call has: gradients of the inputs given, and of the
/// others those that the problem has; all of them when that is null. `types`: of the problem, whose
/// states may be outputs alone.
void set_outputs(const OperandTable& table, const OperandCheck& check, const void* problem,
                 const ElementTypes& types, const Storage& storage, CaseTensors& tensors,
                 void* args);

std::vector<std::string> input_file_names(const OperandTable& table,
                                          const std::vector<std::string_view>& without);

template <class MadeCase, class Rules>
std::unique_ptr<Case> complete_case(const Rules& rules, CaseTensors tensors,
                                    typename Rules::Args& args, const void* problem,
                                    const Storage& storage) {
  OperandCall<Rules> call(rules, args, CheckLevel::kMemory, ArgsForm::kFile);
  const ElementTypes types =
      problem != nullptr ? element_types(*static_cast<const typename Rules::Problem*>(problem))
                         : ElementTypes{};
  set_outputs(operand_table<typename Rules::Op>(), call.check(), problem, types, storage, tensors,
              &args);
  const auto completed = call.complete();
  return std::make_unique<MadeCase>(std::move(tensors), completed, args);
}

}  // namespace detail

/// What tensor files call the inputs of an op, without those that an alias of it has not.
template <class Op>
std::vector<std::string> input_file_names(const std::vector<std::string_view>& without = {}) {
  return detail::input_file_names(operand_table<Op>(), without);
}

/// A case with random inputs. The rules may have `Storage storage(const Problem&)`, and where there
/// are operands of integers `Tensor random_indices(const OperandInfo&, const Problem&,
/// RandomValues&)`, and where a problem does not say all sizes `Extents random_shape(const
/// OperandInfo&, const Problem&)`.
template <class Rules, class MadeCase = OperandCase<typename Rules::Op>>
std::unique_ptr<Case> random_case(const Rules& rules, typename Rules::Problem problem,
                                  const Device& device, std::uint64_t seed) {
  using Op = typename Rules::Op;
  if constexpr (requires { Op::complete(problem); }) Op::complete(problem);
  Storage storage;
  if constexpr (requires { rules.storage(problem); }) storage = rules.storage(problem);
  const auto indices = [&](const OperandInfo& operand, RandomValues& random) {
    if constexpr (requires { rules.random_indices(operand, problem, random); }) {
      return rules.random_indices(operand, problem, random);
    } else {
      return Tensor(DType::kI32, operand_shape(operand_table<Op>(), operand, &problem));
    }
  };
  const auto shape = [&](const OperandInfo& operand) {
    if constexpr (requires { rules.random_shape(operand, problem); }) {
      return rules.random_shape(operand, problem);
    } else {
      return operand_shape(operand_table<Op>(), operand, &problem);
    }
  };
  CaseTensors tensors(device);
  typename Op::Args args{};
  detail::set_random_inputs(operand_table<Op>(), &problem, element_types(problem), storage, seed,
                            shape, indices, tensors, &args);
  return detail::complete_case<MadeCase>(rules, std::move(tensors), args, &problem, storage);
}

/// A case with the inputs of a file, and every output.
template <class Rules, class MadeCase = OperandCase<typename Rules::Op>>
std::unique_ptr<Case> file_case(const Rules& rules, const FileInputs& file, const Device& device,
                                typename Rules::Args args = {}) {
  CaseTensors tensors(device);
  detail::set_file_inputs(operand_table<typename Rules::Op>(), file, tensors, &args);
  file.warn_of_unread_attributes();
  return detail::complete_case<MadeCase>(rules, std::move(tensors), args, nullptr, {});
}

/// An op that follows from its operands: what it derives from this with its own type, it need not
/// write. It may hide what it knows better.
template <class Op>
struct OperandOp {
  template <class Problem>
  static std::unique_ptr<Case> make_case(const Problem& problem, const Device& device,
                                         std::uint64_t seed) {
    return random_case(OperandRules<Op>(), problem, device, seed);
  }
  static std::unique_ptr<Case> bind_case(const TensorMap& tensors, const Attributes& attributes,
                                         const Device& device) {
    const FileInputs file(Op::kName, tensors, attributes, input_file_names<Op>());
    return file_case(OperandRules<Op>(), file, device);
  }
  /// Throws InvalidArgument for a size below its least.
  template <class Problem>
  static void complete(const Problem& problem) {
    check_problem_sizes(operand_table<Op>(), &problem);
  }
  template <class Problem>
  static double bytes(const Problem& problem) {
    return operand_bytes(operand_table<Op>(), &problem, element_types(problem));
  }
  template <class Args>
  static const DeviceId& device_of(const Args& args) {
    return operand_table<Op>().operands[0].view(&args).device();
  }
  /// The problem of a call, checked. Throws InvalidArgument.
  template <class Args>
  static auto problem_of(const Args& args) {
    return problem_of_canonical(OperandRules<Op>(), args);
  }
  template <class Problem, class Args>
  static void check_args(const Problem& problem, const Args& args) {
    require_planned<Op>(problem, problem_of(args));
  }
};

}  // namespace attune
