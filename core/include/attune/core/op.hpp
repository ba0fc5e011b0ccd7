// Ops: what is computed. An op tells the framework all that it needs to handle calls that it knows
// nothing else of.
//
// An op is a type with static members:
//
//   struct RowSoftmax {
//     static constexpr std::string_view kName = "row_softmax";  // stable: stored in databases
//     static constexpr std::string_view kSummary = "softmax over the last dimension";
//     using Problem = RowSoftmaxProblem;
//     using Args = RowSoftmaxArgs;                 // pointers, borrowed
//     static constexpr auto fields();              // of Problem: see problem.hpp
//
//     // Inputs and outputs of its own, filled at random.
//     static std::unique_ptr<Case> make_case(const Problem&, const Device&, std::uint64_t seed);
//     // A small problem of the same element types and code paths, to check kernels on.
//     static Problem reduced(const Problem&);
//     static double bytes(const Problem&);         // inputs read and outputs written once each
//     static double flops(const Problem&);         // nominal floating-point operations
//   };
//
// and optionally:
//
//   Params expand(Params)                         shorthands, rewritten before parsing
//   void complete(Problem&)                       what follows from the other fields; throws
//                                                 InvalidArgument when the problem is not legal
//   std::unique_ptr<Case> bind_case(              a case from a tensor file
//       const TensorMap&, const Attributes&, const Device&)
//   void prepare(Problem&, Args&)                 brings a call into normal form, before its key
//   const DeviceId& device_of(const Args&)        where the tensors are
//   void check_args(const Problem&, const Args&)  throws InvalidArgument unless a plan for the
//                                                 problem may be launched with the arguments
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <attune/core/case.hpp>
#include <attune/core/problem.hpp>

namespace attune {

/// An op as tuner, caches and command line see it. Made from the op's type by op_info<Op>().
struct OpInfo {
  std::string_view name;       // as the caller says it
  std::string_view kernel_op;  // the op whose kernels and rows serve it: another one's for an alias
  std::string_view summary;
  std::uint64_t id = 0;  // op_id(kernel_op)
  std::vector<FieldInfo> fields;

  FieldValues (*values)(ProblemRef) = nullptr;
  std::string (*text)(ProblemRef, bool bucket) = nullptr;
  AnyProblem (*parse)(Params) = nullptr;
  std::unique_ptr<Case> (*make_case)(ProblemRef, const Device&, std::uint64_t seed) = nullptr;
  std::unique_ptr<Case> (*bind_case)(const TensorMap&, const Attributes&,
                                     const Device&) = nullptr;  // or null
  AnyProblem (*reduced)(ProblemRef) = nullptr;
  double (*bytes)(ProblemRef) = nullptr;
  double (*flops)(ProblemRef) = nullptr;
};

template <class Op>
OpInfo op_info() {
  OpInfo info;
  info.name = Op::kName;
  info.kernel_op = Op::kName;
  info.summary = Op::kSummary;
  info.id = op_id(Op::kName);
  info.fields = field_infos<Op>();
  info.values = [](ProblemRef p) { return field_values<Op>(p.as<Op>()); };
  info.text = [](ProblemRef p, bool bucket) { return problem_text<Op>(p.as<Op>(), bucket); };
  info.parse = [](Params params) {
    return AnyProblem::of<Op>(parse_problem<Op>(std::move(params)));
  };
  info.make_case = [](ProblemRef p, const Device& device,
                      std::uint64_t seed) -> std::unique_ptr<Case> {
    return Op::make_case(p.as<Op>(), device, seed);
  };
  if constexpr (requires(TensorMap t, Attributes a, const Device& d) { Op::bind_case(t, a, d); }) {
    info.bind_case = [](const TensorMap& tensors, const Attributes& attributes,
                        const Device& device) -> std::unique_ptr<Case> {
      return Op::bind_case(tensors, attributes, device);
    };
  }
  info.reduced = [](ProblemRef p) { return AnyProblem::of<Op>(Op::reduced(p.as<Op>())); };
  info.bytes = [](ProblemRef p) { return Op::bytes(p.as<Op>()); };
  info.flops = [](ProblemRef p) { return Op::flops(p.as<Op>()); };
  return info;
}

/// An op that lowers to another: a name of its own, the other's kernels and rows. `Alias` has
/// kName, kSummary, `using Target`, and optionally expand(Params) (its defaults, applied before the
/// target's) and bind_case.
template <class Alias>
OpInfo alias_info() {
  using Target = typename Alias::Target;
  OpInfo info = op_info<Target>();
  info.name = Alias::kName;
  info.summary = Alias::kSummary;
  if constexpr (requires(Params params) { Alias::expand(params); }) {
    info.parse = [](Params params) {
      return AnyProblem::of<Target>(parse_problem<Target>(Alias::expand(std::move(params))));
    };
  }
  if constexpr (requires(TensorMap t, Attributes a, const Device& d) {
                  Alias::bind_case(t, a, d);
                }) {
    info.bind_case = [](const TensorMap& tensors, const Attributes& attributes,
                        const Device& device) -> std::unique_ptr<Case> {
      return Alias::bind_case(tensors, attributes, device);
    };
  }
  return info;
}

}  // namespace attune
