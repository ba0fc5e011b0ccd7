// What is wrong with the declaration of a config's axes, said where it is compiled.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <attune/core/axis.hpp>

namespace attune::detail {

template <class T>
constexpr bool has_text() {
  if constexpr (std::is_enum_v<T>) {
    return requires(T value) { std::string(to_string(value)); };
  } else {
    return std::is_arithmetic_v<T>;
  }
}

/// The first axis of `member`, or the number of axes.
template <class Config, class Member>
constexpr std::size_t axis_of(Member member) {
  constexpr auto kAxes = Config::axes();
  std::size_t found = std::tuple_size_v<decltype(kAxes)>;
  std::size_t index = 0;
  std::apply(
      [&](const auto&... axes) {
        const auto look = [&](const auto& axis) {
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(axis.member)>, Member>) {
            if (axis.member == member) found = std::min(found, index);
          }
          ++index;
        };
        (look(axes), ...);
      },
      kAxes);
  return found;
}

template <class Config>
struct AxisChecks {
  static constexpr auto kAxes = Config::axes();
  static constexpr std::size_t kCount = std::tuple_size_v<decltype(kAxes)>;

  template <class Axis>
  static constexpr bool is_own(const Axis& axis) {
    return requires(Config config) { config.*(axis.member); };
  }
  static constexpr bool all_own() {
    return std::apply([](const auto&... axes) { return (is_own(axes) && ...); }, kAxes);
  }
  static constexpr bool defaults_are_values() {
    if constexpr (!all_own()) {
      return true;  // another message says it
    } else {
      return std::apply(
          [](const auto&... axes) {
            [[maybe_unused]] const Config standard{};
            return (std::count(axes.values.begin(), axes.values.end(), standard.*(axes.member)) &&
                    ...);
          },
          kAxes);
    }
  }
  static constexpr bool names_differ() {
    return std::apply(
        [](const auto&... axes) {
          const std::array<std::string_view, kCount> names{axes.name...};
          for (std::size_t i = 0; i < kCount; ++i) {
            for (std::size_t j = 0; j < i; ++j) {
              if (names[i] == names[j]) return false;
            }
          }
          return true;
        },
        kAxes);
  }
  static constexpr bool all_have_text() {
    return std::apply(
        [](const auto&... axes) {
          return (has_text<std::remove_cvref_t<decltype(axes.values[0])>>() && ...);
        },
        kAxes);
  }
  static constexpr bool constraints_name_axes() {
    return std::apply(
        [](const auto&... constraints) {
          [[maybe_unused]] const auto named = [](const auto& constraint) {
            return std::apply(
                [](auto... members) { return ((axis_of<Config>(members) < kCount) && ...); },
                constraint.members);
          };
          return (named(constraints) && ...);
        },
        constraints_of<Config>());
  }
  static constexpr bool can_be_counted() {
    constexpr double kMost = 4e18;
    return std::apply(
        [](const auto&... axes) {
          return (1.0 * ... * static_cast<double>(axes.values.size())) < kMost;
        },
        kAxes);
  }
};

/// Says what is wrong with a config's declaration; true.
template <class Config>
constexpr bool check_config() {
  static_assert(std::is_aggregate_v<Config>,
                "a Config is a plain aggregate: no constructors, no private members");
  static_assert(std::is_trivially_copyable_v<Config>,
                "a Config's members are integers, bools, floating-point numbers and enums");
  static_assert(std::equality_comparable<Config>,
                "a Config has operator==: friend constexpr bool operator==(const C&, const C&) = "
                "default");
  using Checks = AxisChecks<Config>;
  static_assert(Checks::kCount <= 64, "a Config has at most 64 axes");
  static_assert(Checks::all_own(), "an axis names a member of another struct");
  static_assert(Checks::all_have_text(), "an axis's enum has no to_string()");
  static_assert(Checks::names_differ(), "two axes of a Config have one name");
  static_assert(Checks::defaults_are_values(),
                "the default of an axis's member is not among the axis's values");
  static_assert(Checks::constraints_name_axes(), "a constraint names a member that is no axis");
  static_assert(Checks::can_be_counted(), "the axes of a Config span more than 4e18 points");
  return true;
}

}  // namespace attune::detail
