// What the problems of recurrent_attention and of recurrent_decode have in common.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include <attune/core/case_tensors.hpp>
#include <attune/core/operand_check.hpp>
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

/// Whether so many values of 8 bytes can be addressed. Inputs may be small in memory, by strides of
/// 0, and yet make outputs that are not.
bool fits_memory(std::initializer_list<std::int64_t> sizes);

void check_scale(const CallCheck& check, const std::optional<double>& scale);
double scale_or_default(const std::optional<double>& scale, std::int64_t key_channels);

/// Throws InvalidArgument unless arguments of problem `actual` may be launched by a plan for
/// `planned`: one for any strides or alignment takes all of them.
template <class Op>
void require_planned(const typename Op::Problem& planned, typename Op::Problem actual) {
  if (planned.layout == Layout::kStrided) actual.layout = Layout::kStrided;
  if (!planned.aligned) actual.aligned = false;
  if (planned != actual) attune::require_planned<Op>(planned, actual);
}

/// How the tensors of a completed problem are stored. Rows that are not to be aligned are shifted,
/// unless their length has seen to that.
template <class Op>
Storage storage_of(const typename Op::Problem& problem) {
  typename Op::Problem aligned = problem;
  aligned.aligned = true;
  Op::complete(aligned);
  using Order = Storage::Order;
  const Order order = problem.layout == Layout::kBthd   ? Order::kDense
                      : problem.layout == Layout::kBhtd ? Order::kSwapped
                                                        : Order::kPadded;
  return {.order = order, .misaligned = !problem.aligned && aligned.aligned};
}

}  // namespace attune::ops
