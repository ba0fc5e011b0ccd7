// Values of a config's axes, looked up by size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <attune/core/config_axes.hpp>

namespace attune::cpu::simd {

/// The smallest value of an axis that is at least `wanted`, its largest where none is.
template <class Config>
int axis_value_for(int Config::*member, std::int64_t wanted) {
  int least = 0;
  int largest = 0;
  attune::detail::for_each_axis<Config>([&](const auto& axis) {
    if constexpr (std::is_same_v<decltype(axis.member), int Config::*>) {
      if (axis.member != member) return;
      for (const int value : axis.values) {
        largest = std::max(largest, value);
        if (value >= wanted && (least == 0 || value < least)) least = value;
      }
    }
  });
  return least > 0 ? least : largest;
}

/// About half of `value`, or the smallest there is.
template <class Config>
int half_of(int Config::*member, int value) {
  return axis_value_for(member, value / 2);
}

namespace detail {

template <std::size_t kAxes, class Config, class Visit>
void visit_points(Config& config, Visit&& visit) {
  if constexpr (kAxes == 0) {
    if (attune::detail::compiles(config)) visit(std::as_const(config));
  } else {
    constexpr auto kAxis = std::get<kAxes - 1>(Config::axes());
    for (const auto value : kAxis.values) {
      config.*(kAxis.member) = value;
      visit_points<kAxes - 1>(config, visit);
    }
  }
}

}  // namespace detail

/// Calls visit(config) for each of all_configs(), in its order. Axes span tens of thousands of
/// points, of which a problem tries some fifty: they are not written down.
template <class Config, class Visit>
void for_each_config(Visit&& visit) {
  Config config{};
  detail::visit_points<std::tuple_size_v<decltype(Config::axes())>>(config, visit);
}

}  // namespace attune::cpu::simd
