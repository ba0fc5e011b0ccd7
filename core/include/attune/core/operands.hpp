// Operands: the tensors of an op, each declared once.
//
//   struct RowSoftmax : OperandOp<RowSoftmax> {  // operand_case.hpp
//     ...
//     static constexpr auto operands() {
//       return std::tuple{input("x", &Args::x, dims("rows", "cols")).contiguous(),
//                         output("y", &Args::y, dims("rows", "cols")).contiguous().may_be("x")};
//     }
//     static constexpr auto sizes() { return std::array{size_rule("cols").at_least(1)}; }
//   };
//
// From this follow: the checks of a call and their messages, its problem, the outputs that it
// allocates, random cases and cases from files, its least traffic, and the table of its manual.
//
// Operands are checked in the order of their declaration. The first that names a size sets it, and
// a field of the problem that has the size's name takes its value. The first operand of the io type
// decides the element type of all others, and the problem's `dtype` takes it. A member of Args is a
// ConstTensorView, a TensorView or an optional one; for anything else see input(). sizes() may be
// left out.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <attune/core/tensor.hpp>
#include <attune/core/view_ref.hpp>

namespace attune {

enum class Role : std::uint8_t {
  kInput,
  kGate,   // an input: the logarithm of a decay
  kIndex,  // an input of integers
  kState,  // updated in place
  kOutput,
};

enum class Types : std::uint8_t {
  kIo,  // f32, f16 or bf16: the first operand of this type decides which
  kF32,
  kF32OrIo,  // f32 or the io type: the problem's `gate_dtype` is 0, 1, or 2 for some of each
  kState,    // f32, f16 or bf16: the first operand of this type decides, for `state_dtype` as well
  kIndex,    // i32 or i64
};

/// Whether a caller's tensor has the first of the declared dimensions. Where it has not, kernels
/// see it repeated over that dimension, with stride 0.
enum class Leading : std::uint8_t { kThere, kMayBeMissing, kMissing };

/// Names of sizes, outermost first: "B", "N + 1" for one more than N, or "1".
struct DimNames {
  std::array<std::string_view, Extents::kMaxRank> names{};
  int rank = 0;
};
template <class... Names>
constexpr DimNames dims(Names... names) {
  return {{std::string_view(names)...}, static_cast<int>(sizeof...(Names))};
}

/// Values of a random case.
struct RandomRange {
  bool even = false;     // evenly in [low, high), else normal
  double low = 0;        // of an even one
  double high = 0;       //
  double deviation = 1;  // of a normal one
};

/// An operand without the types of its op.
struct OperandInfo {
  std::string_view name;
  std::string_view file_name;  // what tensor files call it
  Role role = Role::kInput;
  Types types = Types::kIo;
  Leading leading = Leading::kThere;
  bool optional = false;
  bool is_contiguous = false;           // the elements of the last dimension follow each other
  bool is_in_layout = false;            // counts for a problem's `layout` and `aligned`
  std::string_view in_place_of = {};    // the input that an output may be exactly
  std::string_view with_name = {};      // the operand without which it may not be given
  int with = -1;                        // its position
  std::string_view not_with_name = {};  // the operand beside which it may not be given
  int not_with = -1;                    // its position
  std::string_view gradient_name = {};  // the input whose gradient an output is
  int gradient_of = -1;                 // its position
  DimNames dims = {};
  std::array<std::int8_t, Extents::kMaxRank> sizes{};  // positions of the dims' names
  std::array<std::int8_t, Extents::kMaxRank> plus{};   // 1 for "N + 1"
  RandomRange random = {};

  ViewRef (*view)(const void* args) = nullptr;  // not given() where it is not there
  void (*set)(void* args, const TensorView& view) = nullptr;
  void (*add_leading)(void* args, std::int64_t size) = nullptr;  // with stride 0
  bool (*given)(const void* problem) = nullptr;  // null where the problem does not say

  bool is_output() const { return role == Role::kOutput; }
  int rank() const { return dims.rank; }
};

/// What a size may be. `name` is one of the operands' dims.
struct SizeRule {
  std::string_view name;
  std::int64_t least = 0;
  std::string_view least_text = {};  // "at least one head"; "K >= 1" when empty
  std::string_view divides = {};     // another size, declared before
  std::string_view plural = {};      // of what divides: "heads"
  std::string_view otherwise = {};   // the size that it is where nothing else has set it
  std::string_view used = {};        // the size that says how much of it one call touches at most
  bool is_absent_at_0 = false;

  constexpr SizeRule at_least(std::int64_t value, std::string_view text = {}) const {
    SizeRule rule = *this;
    rule.least = value;
    rule.least_text = text;
    return rule;
  }
  constexpr SizeRule divisor_of(std::string_view size, std::string_view what) const {
    SizeRule rule = *this;
    rule.divides = size;
    rule.plural = what;
    return rule;
  }
  constexpr SizeRule or_else(std::string_view size) const {
    SizeRule rule = *this;
    rule.otherwise = size;
    return rule;
  }
  constexpr SizeRule used_by(std::string_view size) const {
    SizeRule rule = *this;
    rule.used = size;
    return rule;
  }
  /// Where this size is 0, operands do not have its dimension; where they have it, it is at least
  /// 1.
  /// The first operand that names it decides for all of them. Kernels see them as they were given.
  constexpr SizeRule absent_at_0() const {
    SizeRule rule = *this;
    rule.is_absent_at_0 = true;
    return rule;
  }
};
constexpr SizeRule size_rule(std::string_view name) { return {.name = name}; }

/// Puts a dimension of `size` and stride 0 in front. Throws InvalidArgument at rank kMaxRank.
template <class Pointer>
void repeat_over(BasicTensorView<Pointer>& view, std::int64_t size) {
  const auto in_front = [](std::int64_t first, const Extents& rest) {
    std::array<std::int64_t, Extents::kMaxRank + 1> all{first};
    std::copy(rest.begin(), rest.end(), all.begin() + 1);
    return Extents(std::span<const std::int64_t>(all.data(), std::size_t(rest.rank()) + 1));
  };
  view.shape = in_front(size, view.shape);
  view.strides = in_front(0, view.strides);
}

namespace detail {

/// How an operand that is no view is reached: `Access` has static `ViewRef view(const Args&)`,
/// `void set(Args&, const TensorView&)` and `void add_leading(Args&, std::int64_t)`.
template <class Access>
struct OperandAccess {
  static constexpr bool kOptional = true;
  template <class Args>
  static ViewRef view(Access, const Args& args) {
    return Access::view(args);
  }
  template <class Args>
  static void set(Access, Args& args, const TensorView& view) {
    Access::set(args, view);
  }
  template <class Args>
  static void add_leading(Access, Args& args, std::int64_t size) {
    Access::add_leading(args, size);
  }
};

template <class Args, class View>
struct OperandAccess<View Args::*> {
  static constexpr bool kOptional = requires(View view) { view.has_value(); };
  static ViewRef view(View Args::*member, const Args& args) {
    if constexpr (kOptional) {
      return (args.*member).has_value() ? ViewRef(*(args.*member)) : ViewRef();
    } else {
      return ViewRef(args.*member);
    }
  }
  static void set(View Args::*member, Args& args, const TensorView& view) { args.*member = view; }
  static void add_leading(View Args::*member, Args& args, std::int64_t size) {
    if constexpr (kOptional) {
      repeat_over(*(args.*member), size);
    } else {
      repeat_over(args.*member, size);
    }
  }
};

/// A flag of a problem, or bits of one of its fields: what says that an operand is given.
template <class Problem, class T>
struct GivenBy {
  T Problem::*member;
  T bits;  // 0 for a flag or a number
};
struct GivenByNothing {};

}  // namespace detail

/// An operand with the types of its op; made by input(), gate(), ... and refined by its members.
template <class Access, class Given = detail::GivenByNothing>
struct Operand {
  OperandInfo info;
  Access access;
  Given given_by_member{};

  /// The last dimension is contiguous.
  constexpr Operand contiguous() const {
    return with([](OperandInfo& is) { is.is_contiguous = true; });
  }
  /// Its strides and addresses count for the problem's `layout` and `aligned`.
  constexpr Operand in_layout() const {
    return with([](OperandInfo& is) { is.is_in_layout = true; });
  }
  constexpr Operand rows() const { return contiguous().in_layout(); }
  constexpr Operand f32() const {
    return with([](OperandInfo& is) { is.types = Types::kF32; });
  }
  /// Stored as states are: f32, f16 or bf16, all operands of this type in one call alike.
  constexpr Operand state_type() const {
    return with([](OperandInfo& is) { is.types = Types::kState; });
  }
  /// May be given only where that operand is, and is there in problems only where it is.
  constexpr Operand only_with(std::string_view operand) const {
    return with([&](OperandInfo& is) { is.with_name = operand; });
  }
  /// May not be given where that operand is; cases from files have no such output then.
  constexpr Operand not_with(std::string_view operand) const {
    return with([&](OperandInfo& is) { is.not_with_name = operand; });
  }
  constexpr Operand leading(Leading leading) const {
    return with([&](OperandInfo& is) { is.leading = leading; });
  }
  /// What tensor files call it, where that is not its name.
  constexpr Operand in_files(std::string_view name) const {
    return with([&](OperandInfo& is) { is.file_name = name; });
  }
  /// An output may be exactly this input.
  constexpr Operand may_be(std::string_view input) const {
    return with([&](OperandInfo& is) { is.in_place_of = input; });
  }
  /// An output is this input's gradient: of its shape, and, when optional, given exactly when it
  /// is.
  constexpr Operand gradient_of(std::string_view input) const {
    return with([&](OperandInfo& is) { is.gradient_name = input; });
  }
  /// Random values are normal, with this standard deviation.
  constexpr Operand normal(double deviation) const {
    return with([&](OperandInfo& is) { is.random = {.deviation = deviation}; });
  }
  /// Random values lie evenly in [low, high).
  constexpr Operand evenly(double low, double high) const {
    return with([&](OperandInfo& is) { is.random = {.even = true, .low = low, .high = high}; });
  }
  /// The field of the problem that says whether it is given: a flag, a number that is 0 when it is
  /// not, or one bit of a set.
  template <class Problem, class T>
  constexpr auto given_by(T Problem::*member) const {
    return Operand<Access, detail::GivenBy<Problem, T>>{info, access, {member, T{}}};
  }
  template <class Problem, class T>
  constexpr auto given_by(T Problem::*member, std::type_identity_t<T> bit) const {
    return Operand<Access, detail::GivenBy<Problem, T>>{info, access, {member, bit}};
  }

 private:
  template <class Change>
  constexpr Operand with(const Change& change) const {
    Operand changed = *this;
    change(changed.info);
    return changed;
  }
};

namespace detail {

template <class Access>
constexpr Operand<Access> make_operand(std::string_view name, Access access, const DimNames& dims,
                                       Role role, Types types) {
  Operand<Access> operand{{}, access, {}};
  operand.info.name = operand.info.file_name = name;
  operand.info.role = role;
  operand.info.types = types;
  operand.info.dims = dims;
  operand.info.optional = OperandAccess<Access>::kOptional;
  return operand;
}

}  // namespace detail

/// Operands of the io type. `access` is a member of Args, or an object whose type has static
/// functions view, set and add_leading (detail::OperandAccess).
template <class Access>
constexpr auto input(std::string_view name, Access access, const DimNames& dims) {
  return detail::make_operand(name, access, dims, Role::kInput, Types::kIo);
}
template <class Access>
constexpr auto output(std::string_view name, Access access, const DimNames& dims) {
  return detail::make_operand(name, access, dims, Role::kOutput, Types::kIo);
}
/// The logarithm of a decay, f32 or the io type. Random ones decay by 0.95 to 0.6 a token.
template <class Access>
constexpr auto gate(std::string_view name, Access access, const DimNames& dims) {
  return detail::make_operand(name, access, dims, Role::kGate, Types::kF32OrIo).evenly(-0.5, -0.05);
}
/// Integers. Random ones come from the op (OperandRules::random_indices).
template <class Access>
constexpr auto index(std::string_view name, Access access, const DimNames& dims) {
  return detail::make_operand(name, access, dims, Role::kIndex, Types::kIndex);
}
/// A state, updated in place: f32, unless state_type() says more.
template <class Access>
constexpr auto state(std::string_view name, Access access, const DimNames& dims) {
  return detail::make_operand(name, access, dims, Role::kState, Types::kF32).normal(0.1);
}

}  // namespace attune
