// Plans of any op behind attune_plan, and what the ops' files share.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "handles.hpp"
#include "structs.hpp"

namespace attune::c {

/// A plan for the caller, made by a call like `how`.
attune_plan* make_plan(const attune_call& how, attune_plan::AnyPlan plan);

/// The plan of this op. Throws InvalidArgument for NULL and for another op's.
template <class Op>
const Plan<Op>& plan_of(const attune_plan* plan) {
  require("plan", plan);
  const auto* of = std::get_if<Plan<Op>>(&plan->plan);
  if (of == nullptr) {
    const std::string_view op =
        std::visit([]<class Other>(const Plan<Other>&) -> std::string_view { return Other::kName; },
                   plan->plan);
    throw InvalidArgument(str("plan: is one of ", op, ", expected one of ", Op::kName));
  }
  return *of;
}

/// The workspace of a launch. Throws InvalidArgument for NULL with a size.
std::span<std::byte> bytes_of(void* workspace, std::size_t bytes);

/// A launch has its plan's direction: arguments do not say it. Throws InvalidArgument.
template <class Op>
void require_direction(const Plan<Op>& plan, std::uint32_t flags) {
  if (((flags & ATTUNE_REVERSE) != 0) == plan.problem().reverse) return;
  throw InvalidArgument(str(Op::kName, ": args: flags ", plan.problem().reverse ? "lack" : "have",
                            " ATTUNE_REVERSE, unlike the plan's"));
}

/// Throws InvalidArgument for a gate, or the gradient of one, that slopes or a layer exclude.
void refuse_with_slopes_or_layer(
    std::string_view op,
    std::initializer_list<std::pair<const char*, const attune_tensor*>> excluded);

/// How states of 16 bits are stored.
template <class Args>
StateRounding rounding_of(const Args& args) {
  return (args.flags & ATTUNE_STOCHASTIC_STATES) != 0 ? stochastic(args.state_seed)
                                                      : StateRounding();
}

// A layer is given where one of its numbers is not 0; a layer_idx of 0 is the first one.

template <class Args>
std::optional<std::int64_t> num_layers_of(const Args& args) {
  return args.num_layers != 0 ? std::optional(args.num_layers) : std::nullopt;
}
template <class Args>
std::optional<std::int64_t> layer_idx_of(const Args& args) {
  return args.num_layers != 0 || args.layer_idx != 0 ? std::optional(args.layer_idx) : std::nullopt;
}

}  // namespace attune::c
