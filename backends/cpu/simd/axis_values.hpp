// Values of a config's axes, looked up by size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <attune/core/config_axes.hpp>

namespace attune::cpu::simd {

/// The smallest value of an axis that is at least `wanted`, its largest where none is.
template <class Config>
int axis_value_for(int Config::*member, std::int64_t wanted) {
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

/// About half of `value`, or the smallest there is.
template <class Config>
int half_of(int Config::*member, int value) {
  return axis_value_for(member, value / 2);
}

}  // namespace attune::cpu::simd
