// The operands of an op (operands.hpp) as one table, without the op's types: what checks, cases and
// texts walk.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <attune/core/operands.hpp>
#include <attune/core/problem.hpp>

namespace attune {

/// A size without the types of its op.
struct SizeInfo {
  SizeRule rule;
  int divides = -1;  // positions
  int otherwise = -1;
  int used = -1;
  std::int64_t constant = -1;                          // of the size "1"
  std::int64_t (*get)(const void* problem) = nullptr;  // null where the problem has no such field
};

inline constexpr std::size_t kMaxSizes = 16;
inline constexpr std::size_t kMaxOperands = 32;

/// What a call has said: its sizes, and bits of those that it has set itself and of the operands
/// that it has given.
struct OperandValues {
  std::array<std::int64_t, kMaxSizes> sizes;
  std::uint32_t set = 0;
  std::uint32_t given = 0;
};

/// All operands of an op.
struct OperandTable {
  std::string_view op;
  std::span<const OperandInfo> operands;
  std::span<const SizeInfo> sizes;
  std::uint32_t outputs = 0;  // bits of operands
  /// Sets all views, and says which are given.
  std::uint32_t (*view_all)(const void* args, ViewRef* views) = nullptr;
  void (*set_problem)(void* problem, const OperandValues& values) = nullptr;
};

namespace detail {

constexpr std::string_view without_plus(std::string_view dim) {
  return dim.ends_with(" + 1") ? dim.substr(0, dim.size() - 4) : dim;
}

/// Names of sizes, in the order in which operands name them; "" from the last on.
template <class Op>
constexpr auto size_names() {
  std::array<std::string_view, kMaxSizes> names{};
  std::size_t count = 0;
  const auto add = [&](const DimNames& dims) {
    for (int dim = 0; dim < dims.rank; ++dim) {
      const std::string_view name = without_plus(dims.names[static_cast<std::size_t>(dim)]);
      bool known = false;
      for (std::size_t i = 0; i < count; ++i) known = known || names[i] == name;
      if (!known) names[count++] = name;
    }
  };
  std::apply([&](const auto&... operand) { (add(operand.info.dims), ...); }, Op::operands());
  return names;
}

template <class Op>
constexpr auto operand_names() {
  return std::apply([](const auto&... operand) { return std::array{operand.info.name...}; },
                    Op::operands());
}

// Evaluated once an op, not at each question: compilers limit the steps of a constant expression.
template <class Op>
struct Names {
  static constexpr auto kSizes = size_names<Op>();
  static constexpr auto kOperands = operand_names<Op>();
};

/// Position of a name, or -1.
template <std::size_t kCount>
constexpr int find_name(const std::array<std::string_view, kCount>& names, std::string_view name) {
  for (std::size_t i = 0; i < kCount; ++i) {
    if (!name.empty() && names[i] == name) return static_cast<int>(i);
  }
  return -1;
}
template <class Op>
constexpr int find_size(std::string_view name) {
  return find_name(Names<Op>::kSizes, name);
}
template <class Op>
constexpr int find_operand(std::string_view name) {
  return find_name(Names<Op>::kOperands, name);
}

template <class Op, std::size_t I>
struct ErasedOperand {
  using Args = typename Op::Args;
  static constexpr auto kOperand = std::get<I>(Op::operands());
  static constexpr auto kGiven = kOperand.given_by_member;
  using Access = OperandAccess<std::remove_const_t<decltype(kOperand.access)>>;
  static constexpr bool kIsSaid =
      !std::is_same_v<std::remove_const_t<decltype(kGiven)>, GivenByNothing>;
  static constexpr bool kIsSet = [] {
    if constexpr (requires { kGiven.bits; })
      return static_cast<std::int64_t>(kGiven.bits) != 0;
    else
      return false;
  }();

  static ViewRef view(const void* args) {
    return Access::view(kOperand.access, *static_cast<const Args*>(args));
  }
  static void set(void* args, const TensorView& view) {
    Access::set(kOperand.access, *static_cast<Args*>(args), view);
  }
  static void add_leading(void* args, std::int64_t size) {
    Access::add_leading(kOperand.access, *static_cast<Args*>(args), size);
  }
  static bool given(const void* problem) {
    const auto value = static_cast<const typename Op::Problem*>(problem)->*kGiven.member;
    if constexpr (kIsSet) {
      return (value & kGiven.bits) != 0;
    } else {
      return value != 0;
    }
  }
  static void set_given(typename Op::Problem& problem, bool given) {
    if constexpr (!kIsSaid)
      return;
    else
      set_member(problem.*kGiven.member, given);
  }
  template <class T>
  static void set_member(T& value, bool given) {
    if constexpr (kIsSet) {
      if (given) value |= kGiven.bits;
    } else if constexpr (std::is_same_v<T, bool>) {
      value = given;
    }  // a number is set by its size
  }

  static constexpr OperandInfo info() {
    OperandInfo info = kOperand.info;
    info.view = &view;
    info.set = &set;
    info.add_leading = &add_leading;
    if constexpr (kIsSaid) info.given = &given;
    info.gradient_of = find_operand<Op>(info.gradient_name);
    info.with = find_operand<Op>(info.with_name);
    info.not_with = find_operand<Op>(info.not_with_name);
    for (int dim = 0; dim < info.dims.rank; ++dim) {
      const auto at = static_cast<std::size_t>(dim);
      const std::string_view name = info.dims.names[at];
      info.sizes[at] = static_cast<std::int8_t>(find_size<Op>(without_plus(name)));
      info.plus[at] = name == without_plus(name) ? 0 : 1;
    }
    return info;
  }
};

template <class Op, std::size_t I>
struct ErasedSize {
  static constexpr std::string_view kName = Names<Op>::kSizes[I];
  using Problem = typename Op::Problem;

  static constexpr std::size_t field_position() {
    std::size_t position = 0;
    std::size_t found = std::size_t(-1);
    std::apply(
        [&](const auto&... field) {
          ((found = field.name == kName ? position : found, ++position), ...);
        },
        Op::fields());
    return found;
  }
  static constexpr bool kIsField = field_position() != std::size_t(-1);
  static std::int64_t get(const void* problem) {
    constexpr auto kField = std::get<field_position()>(Op::fields());
    return static_cast<std::int64_t>(static_cast<const Problem*>(problem)->*kField.member);
  }
  static void set(Problem& problem, const OperandValues& values) {
    if constexpr (kIsField) {
      constexpr auto kField = std::get<field_position()>(Op::fields());
      if ((values.set >> I & 1U) != 0) problem.*kField.member = values.sizes[I];
    }
  }
  static constexpr SizeInfo info() {
    SizeInfo info{.rule = size_rule(kName)};
    if constexpr (requires { Op::sizes(); }) {
      for (const SizeRule& rule : Op::sizes()) {
        if (rule.name == kName) info.rule = rule;
      }
    }
    info.divides = find_size<Op>(info.rule.divides);
    info.otherwise = find_size<Op>(info.rule.otherwise);
    info.used = find_size<Op>(info.rule.used);
    if (kName == "1") info.constant = 1;
    if constexpr (kIsField) info.get = &get;
    return info;
  }
};

template <class Op>
constexpr std::size_t size_count() {
  std::size_t count = 0;
  for (const std::string_view name : size_names<Op>()) count += name.empty() ? 0 : 1;
  return count;
}

}  // namespace detail

/// Position of the operand or size of that name, for OperandCheck. A name that is not there does
/// not compile.
template <class Op>
consteval int operand_at(std::string_view name) {
  const int found = detail::find_operand<Op>(name);
  if (found < 0) throw "the op declares no operand of that name";
  return found;
}
template <class Op>
consteval int size_at(std::string_view name) {
  const int found = detail::find_size<Op>(name);
  if (found < 0) throw "the op declares no size of that name";
  return found;
}

namespace detail {

template <class Op, class Operands, class Sizes>
struct ErasedOp;
template <class Op, std::size_t... I, std::size_t... J>
struct ErasedOp<Op, std::index_sequence<I...>, std::index_sequence<J...>> {
  static_assert(sizeof...(I) <= kMaxOperands && sizeof...(J) <= kMaxSizes);

  static std::uint32_t view_all(const void* args, ViewRef* views) {
    ((views[I] = ErasedOperand<Op, I>::view(args)), ...);
    return (0U | ... | (static_cast<std::uint32_t>(views[I].given()) << I));
  }
  static void set_problem(void* problem, const OperandValues& values) {
    auto& typed = *static_cast<typename Op::Problem*>(problem);
    (ErasedSize<Op, J>::set(typed, values), ...);
    (ErasedOperand<Op, I>::set_given(typed, (values.given >> I & 1U) != 0), ...);
  }
  static constexpr std::array kOperands{ErasedOperand<Op, I>::info()...};
  static constexpr std::array kSizes{ErasedSize<Op, J>::info()...};
  static constexpr std::uint32_t kOutputs =
      (0U | ... | (kOperands[I].role == Role::kOutput ? 1U << I : 0U));
  static constexpr OperandTable kTable{Op::kName, kOperands, kSizes,
                                       kOutputs,  &view_all, &set_problem};
};

}  // namespace detail

template <class Op>
const OperandTable& operand_table() {
  constexpr std::size_t kOperands = std::tuple_size_v<decltype(Op::operands())>;
  return detail::ErasedOp<Op, std::make_index_sequence<kOperands>,
                          std::make_index_sequence<detail::size_count<Op>()>>::kTable;
}

/// A row of the table of an op's manual.
struct OperandText {
  std::string name;
  std::string shape;  // "[B,T,H,K]", "[H] or [N,H]", "[B,H,K] or [B,T,H,K]"
  std::string types;  // "f32 or q's"
};
std::vector<OperandText> operand_texts(const OperandTable& table);

/// The element types of a problem: its members `dtype`, `gate_dtype` and `state_dtype`, f32 where
/// it has none.
struct ElementTypes {
  DType io = DType::kF32;
  int gates = 0;  // of Types::kF32OrIo: 0 for f32, 1 for the io type, 2 for some of each
  DType state = DType::kF32;
};
template <class Problem>
constexpr ElementTypes element_types(const Problem& problem) {
  ElementTypes types;
  if constexpr (requires { problem.dtype; }) types.io = problem.dtype;
  if constexpr (requires { problem.gate_dtype; })
    types.gates = static_cast<int>(problem.gate_dtype);
  if constexpr (requires { problem.state_dtype; }) types.state = problem.state_dtype;
  return types;
}

/// The least traffic of a problem: each input read once, each output written once, states both.
double operand_bytes(const OperandTable& table, const void* problem, const ElementTypes& types);

/// The shape that an operand has in a problem, as a caller gives it.
Extents operand_shape(const OperandTable& table, const OperandInfo& operand, const void* problem);
/// Whether a problem has an operand.
bool operand_given(const OperandTable& table, const OperandInfo& operand, const void* problem);

/// Throws InvalidArgument for a size of a problem that is below its least, or no divisor of what it
/// should divide.
void check_problem_sizes(const OperandTable& table, const void* problem);

}  // namespace attune
