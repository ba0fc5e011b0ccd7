// What the problems of recurrent_attention and of recurrent_decode have in common.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include <attune/core/problem.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::ops {

/// D=64 as K=64 V=64. Throws InvalidArgument when K or V is given besides.
Params expand_channels(std::string_view op, Params params);

/// gate=`gates` where no gate is given. Throws InvalidArgument for a gate that is not one of
/// `legal`, the bits of an alias's op.
Params expand_gates(std::string_view op, Params params, std::string_view gates,
                    std::int32_t required, std::int32_t legal);

/// Throws InvalidArgument: "<op>: <field>: got <value>, expected <expected>".
void require(std::string_view op, bool rule, std::string_view field, std::int64_t value,
             std::string_view expected);

/// The rules of gates and types, and what follows from them: one spelling for one problem.
template <class Problem>
void complete_types(std::string_view op, Problem& problem) {
  constexpr std::int32_t kTensorGates = kGateG | kGateGk | kGateGv;
  constexpr std::int32_t kAllGates = kTensorGates | kGateGamma;
  require(op, is_floating(problem.dtype), "dtype", static_cast<std::int64_t>(problem.dtype),
          "f32, f16 or bf16");
  require(op, (problem.gates & ~kAllGates) == 0, "gate", problem.gates, "bits of Gate");
  const auto gates = static_cast<std::uint32_t>(problem.gates & kTensorGates);
  if (gates == 0 || problem.dtype == DType::kF32) problem.gate_dtype = GateDType::kF32;
  require(op, problem.gate_dtype != GateDType::kMixed || std::popcount(gates) > 1, "gate_dtype",
          static_cast<std::int64_t>(problem.gate_dtype), "mixed only with two gates or more");
  problem.tf32 = problem.tf32 && problem.dtype == DType::kF32;
}

/// Bytes of one element of g, gk or gv. Where some are f32 and some are not, as if all were.
template <class Problem>
double gate_width(const Problem& problem) {
  return problem.gate_dtype == GateDType::kIo ? static_cast<double>(size_of(problem.dtype)) : 4.0;
}

/// Throws InvalidArgument unless arguments of problem `actual` may be launched by a plan for
/// `planned`: one for any strides or alignment takes all of them.
template <class Op>
void require_planned(const typename Op::Problem& planned, typename Op::Problem actual) {
  if (planned.layout == Layout::kStrided) actual.layout = Layout::kStrided;
  if (!planned.aligned) actual.aligned = false;
  if (planned == actual) return;
  detail::for_each_field<Op>([&](const auto& f) {
    const auto wanted = static_cast<std::int64_t>(planned.*(f.member));
    const auto given = static_cast<std::int64_t>(actual.*(f.member));
    if (wanted == given) return;
    throw InvalidArgument(str(Op::kName, ": args: ", f.name, " is ", detail::label_text(f, given),
                              ", expected the plan's ", detail::label_text(f, wanted)));
  });
}

}  // namespace attune::ops
