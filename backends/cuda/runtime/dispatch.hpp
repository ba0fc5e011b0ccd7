// From values known at run time to the instance of a kernel that was compiled for them. A value
// that nothing was compiled for throws: no other instance is ever run in its place.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <iterator>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <attune/core/config_axes.hpp>
#include <attune/core/dtype.hpp>
#include <attune/core/error.hpp>

namespace attune::cuda {

/// Says that no kernel was compiled for what was asked.
[[noreturn]] inline void throw_no_instance(std::string_view what) {
  throw Unsupported(str("cuda: no kernel is compiled for ", what));
}

/// Returns f.operator()<value>() for the one of the values that `value` is.
template <auto kFirst, auto... kRest, class Value, class F>
auto with_value(Value value, F&& f) {
  if (value == kFirst) return f.template operator()<kFirst>();
  if constexpr (sizeof...(kRest) > 0) {
    return with_value<kRest...>(value, f);
  } else {
    throw_no_instance("a value of its problem or config");
  }
}

/// The same for the values of an array of static storage, such as an axis is made of.
template <const auto& kValues, class Value, class F>
auto with_value_of(Value value, F&& f) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return with_value<kValues[I]...>(value, f);
  }
  (std::make_index_sequence<std::size(kValues)>{});
}

namespace detail {

template <class Config, class T>
Config config_of(T Config::*member);

template <auto kMember, std::size_t kIndex = 0>
constexpr auto axis_values() {
  using Config = decltype(config_of(kMember));
  constexpr auto kAxis = std::get<kIndex>(Config::axes());
  if constexpr (std::is_same_v<decltype(kAxis.member), decltype(kMember)>) {
    if constexpr (kAxis.member == kMember) {
      return kAxis.values;
    } else {
      return axis_values<kMember, kIndex + 1>();
    }
  } else {
    return axis_values<kMember, kIndex + 1>();
  }
}

}  // namespace detail

/// The values of the axis of a config's member.
template <auto kMember>
inline constexpr auto kAxisValues = detail::axis_values<kMember>();

/// Calls f.operator()<Constant<c>>() for the compiled instance c of a config (its launch axes are
/// at their defaults in c: read those from the config).
template <class Config, class F>
void with_instance(const Config& config, F&& f) {
  if (!dispatch(config, f)) throw_no_instance(to_text(to_params(config)));
}

/// The element type that a tensor of `dtype` has on the device.
template <class T>
inline constexpr DType kDTypeOf = std::is_same_v<T, float>    ? DType::kF32
                                  : std::is_same_v<T, __half> ? DType::kF16
                                                              : DType::kBF16;

/// Returns f.operator()<T>() for the one of the element types that `dtype` is: float, __half or
/// __nv_bfloat16.
template <class First, class... Rest, class F>
auto with_element(DType dtype, F&& f) {
  if (dtype == kDTypeOf<First>) return f.template operator()<First>();
  if constexpr (sizeof...(Rest) > 0) {
    return with_element<Rest...>(dtype, f);
  } else {
    throw_no_instance(to_string(dtype));
  }
}

}  // namespace attune::cuda
