// Values of a config's axes, looked up by size: what heuristics choose by.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <attune/core/config_axes.hpp>

namespace attune {

/// The smallest value of an axis that is at least `wanted`, its largest where none is.
template <class Config>
constexpr int axis_value_for(int Config::*member, std::int64_t wanted) {
  int least = 0;
  int largest = 0;
  detail::for_each_axis<Config>([&](const auto& axis) {
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

/// The ends of an axis.
template <class Config>
constexpr int smallest_value(int Config::*member) {
  return axis_value_for(member, 0);
}
template <class Config>
constexpr int largest_value(int Config::*member) {
  return axis_value_for(member, INT64_MAX);
}

}  // namespace attune
