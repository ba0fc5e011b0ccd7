// How a config declares what may be tuned: its axes, and the constraints between them.
//
//   struct BlockedConfig {
//     using Op = RowSoftmax;               // the op whose kernels take this config
//     int unroll = 4;                      // plain members with good defaults
//     Order order = Order::kRows;
//     int threads = 1;
//     int stages = 2;
//     friend constexpr bool operator==(const BlockedConfig&, const BlockedConfig&) = default;
//     static constexpr auto axes() {
//       using C = BlockedConfig;
//       return std::tuple{axis("unroll", &C::unroll, {1, 4, 8}),
//                         axis("order", &C::order, {Order::kRows, Order::kColumns}),
//                         launch_axis("threads", &C::threads, {1, 2, 4}),
//                         launch_axis("stages", &C::stages, {2, 3}).when(&C::order, Order::kRows)};
//     }
//     static constexpr auto constraints() {   // optional
//       using C = BlockedConfig;
//       return std::tuple{
//           constraint("unroll <= cols",
//                      [](const RowSoftmaxProblem& p, int unroll) { return unroll <= p.cols; },
//                      &C::unroll),
//           constraint("threads * unroll <= 16",
//                      [](int threads, int unroll) { return threads * unroll <= 16; },
//                      &C::threads, &C::unroll)};
//     }
//   };
//
// An `axis` picks an instance of a template (keep a kernel under about 50 of them per element
// type); a `launch_axis` is a run-time value. Members are integers, bools, floating-point numbers
// (whose text is the shortest that reads back as the same number) or enums, which are printed by
// `to_string(E)`, found by argument-dependent lookup: that is how values get names. The order of
// axes and of values has no meaning: an index into them is never stored.
//
// Where the condition of when() does not hold, an axis has its default alone and is left out of
// texts. A constraint is a sentence and a predicate over the members that it names, which may ask
// for the problem first. It sees no other members, so a search leaves out all configs that break it
// as soon as those are set.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace attune {

enum class AxisKind { kCompiled, kLaunch };

namespace detail {

struct Always {
  template <class Config>
  constexpr bool operator()(const Config&) const {
    return true;
  }
};

template <class Config, class T>
struct MemberIs {
  T Config::*member;
  T value;
  constexpr bool operator()(const Config& config) const { return config.*member == value; }
};

}  // namespace detail

template <class Config, class T, std::size_t N, class Condition = detail::Always>
struct Axis {
  std::string_view name;
  T Config::*member;
  std::array<T, N> values;
  AxisKind kind;
  Condition applies{};  // to a config

  /// The same axis, which means something only where `other` is `value`.
  template <class Other, class U>
  constexpr auto when(U Other::*other, std::type_identity_t<U> value) const {
    return Axis<Config, T, N, detail::MemberIs<Other, U>>{
        name, member, values, kind, {other, value}};
  }
};

/// A template argument of the kernel.
template <class Config, class T, std::size_t N>
constexpr Axis<Config, T, N> axis(std::string_view name, T Config::*member,
                                  const std::type_identity_t<T> (&values)[N]) {
  return {name, member, std::to_array(values), AxisKind::kCompiled};
}

/// A run-time value.
template <class Config, class T, std::size_t N>
constexpr Axis<Config, T, N> launch_axis(std::string_view name, T Config::*member,
                                         const std::type_identity_t<T> (&values)[N]) {
  return {name, member, std::to_array(values), AxisKind::kLaunch};
}

/// What `{}` is: an array of no values cannot be.
struct NoValues {};
template <class Config, class T>
constexpr Axis<Config, T, 1> axis(std::string_view, T Config::*, NoValues) {
  static_assert(sizeof(Config) == 0, "an axis has no values");
  return {};
}
template <class Config, class T>
constexpr Axis<Config, T, 1> launch_axis(std::string_view, T Config::*, NoValues) {
  static_assert(sizeof(Config) == 0, "an axis has no values");
  return {};
}

template <class Predicate, class... Members>
struct Constraint {
  std::string_view text;
  Predicate holds;
  std::tuple<Members...> members;
};

/// What has to hold between some members, as a sentence ("tile_v <= V") and as
/// `holds(values of the members...)` or `holds(problem, values...)`.
template <class Predicate, class... Members>
requires(sizeof...(Members) > 0 &&
         (std::is_member_object_pointer_v<Members> &&
          ...)) constexpr Constraint<Predicate, Members...> constraint(std::string_view text,
                                                                       Predicate holds,
                                                                       Members... members) {
  return {text, holds, {members...}};
}

namespace detail {

template <class Config>
constexpr auto constraints_of() {
  if constexpr (requires { Config::constraints(); }) {
    return Config::constraints();
  } else {
    return std::tuple{};
  }
}

/// Whether `config` keeps a constraint; of one that asks for the problem, true without any.
template <class Config, class Predicate, class... Members>
constexpr bool keeps(const Constraint<Predicate, Members...>& constraint, const Config& config,
                     [[maybe_unused]] const void* problem) {
  return std::apply(
      [&](auto... member) {
        if constexpr (std::is_invocable_v<Predicate, decltype(config.*member)...>) {
          return static_cast<bool>(constraint.holds(config.*member...));
        } else {
          using Problem = typename Config::Op::Problem;
          static_assert(std::is_invocable_v<Predicate, const Problem&, decltype(config.*member)...>,
                        "a constraint's predicate takes the members that it names, in their "
                        "order, after the problem if it asks for that");
          return problem == nullptr ||
                 static_cast<bool>(
                     constraint.holds(*static_cast<const Problem*>(problem), config.*member...));
        }
      },
      constraint.members);
}

template <class T>
std::string axis_value_text(T value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(to_string(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "yes" : "no";
  } else if constexpr (std::is_floating_point_v<T>) {
    std::array<char, 64> text;
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
  } else {
    return std::to_string(value);
  }
}

/// Whether `text` stands for `value`; numbers may be written in other ways than attune's.
template <class T>
bool is_axis_value(T value, std::string_view text) {
  if constexpr (std::is_floating_point_v<T>) {
    T number{};
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc() && stop == end && number == value;
  } else {
    return axis_value_text(value) == text;
  }
}

}  // namespace detail
}  // namespace attune
