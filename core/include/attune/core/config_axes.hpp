// A config's tunable values, declared once.
//
//   struct BlockedConfig {
//     using Op = RowSoftmax;               // the op whose kernels take this config
//     int unroll = 4;                      // plain members with good defaults
//     int threads = 1;
//     friend constexpr bool operator==(const BlockedConfig&, const BlockedConfig&) = default;
//     static constexpr auto axes() {
//       return std::tuple{axis("unroll", &BlockedConfig::unroll, {1, 4, 8}),
//                         launch_axis("threads", &BlockedConfig::threads, {1, 2, 4})};
//     }
//     static constexpr bool compiles(const BlockedConfig& c);   // optional: which instances exist
//   };
//
// Names, text, database, candidates, validation and dispatch to an instance all follow from axes().
// An `axis` picks an instance of a template (keep a kernel under about 50 of them per element
// type); a `launch_axis` is a run-time value. Members are integers, bools or enums; an enum prints
// by `to_string(E)`, found by argument-dependent lookup. The order of axes and of values has no
// meaning: an index into them is never stored.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <attune/core/error.hpp>
#include <attune/core/params.hpp>

namespace attune {

enum class AxisKind { kCompiled, kLaunch };

template <class Config, class T, std::size_t N>
struct Axis {
  std::string_view name;
  T Config::*member;
  std::array<T, N> values;
  AxisKind kind;
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

namespace detail {

template <class Config, class Visit>
constexpr void for_each_axis(Visit&& visit) {
  std::apply([&](const auto&... axes) { (visit(axes), ...); }, Config::axes());
}

template <class Config>
constexpr bool compiles(const Config& config) {
  if constexpr (requires { Config::compiles(config); }) {
    return Config::compiles(config);
  } else {
    return true;
  }
}

/// How many points the axes span; launch axes count as one value when `compiled_only`.
template <class Config>
constexpr std::size_t point_count(bool compiled_only) {
  std::size_t count = 1;
  for_each_axis<Config>([&](const auto& a) {
    if (!compiled_only || a.kind == AxisKind::kCompiled) count *= a.values.size();
  });
  return count;
}

template <class Config>
constexpr Config point(std::size_t index, bool compiled_only) {
  Config config{};
  for_each_axis<Config>([&](const auto& a) {
    if (compiled_only && a.kind == AxisKind::kLaunch) return;
    config.*(a.member) = a.values[index % a.values.size()];
    index /= a.values.size();
  });
  return config;
}

template <class Config>
constexpr std::size_t compiled_count() {
  std::size_t count = 0;
  for (std::size_t i = 0; i < point_count<Config>(true); ++i) {
    count += compiles(point<Config>(i, true)) ? 1 : 0;
  }
  return count;
}

template <class Config>
constexpr auto compiled_configs() {
  std::array<Config, compiled_count<Config>()> configs{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < point_count<Config>(true); ++i) {
    if (const Config config = point<Config>(i, true); compiles(config)) configs[count++] = config;
  }
  return configs;
}

template <class T>
std::string axis_value_text(T value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(to_string(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "yes" : "no";
  } else {
    return std::to_string(value);
  }
}

}  // namespace detail

/// The instances that exist: all points of the compiled axes that compiles() keeps, launch axes at
/// their defaults.
template <class Config>
inline constexpr auto kCompiledConfigs = detail::compiled_configs<Config>();

/// Every point of all axes that compiles() keeps.
template <class Config>
std::vector<Config> all_configs() {
  std::vector<Config> configs;
  for (std::size_t i = 0; i < detail::point_count<Config>(false); ++i) {
    if (const Config config = detail::point<Config>(i, false); detail::compiles(config)) {
      configs.push_back(config);
    }
  }
  return configs;
}

/// A config as a type, since nvcc 13.0 does not take a namespaced struct as a template argument of
/// a kernel.
template <auto kConfig>
struct Constant {
  static constexpr auto kValue = kConfig;
};

/// Calls f.operator()<Constant<c>>() for the compiled instance c of `config` (its launch axes are
/// at their defaults in c: read those from `config`). Returns false when no such instance exists.
template <class Config, class F>
bool dispatch(const Config& config, F&& f) {
  Config wanted = config;
  const Config defaults{};
  detail::for_each_axis<Config>([&](const auto& a) {
    if (a.kind == AxisKind::kLaunch) wanted.*(a.member) = defaults.*(a.member);
  });
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return ((wanted == kCompiledConfigs<Config>[I]
                 ? (f.template operator()<Constant<kCompiledConfigs<Config>[I]>>(), true)
                 : false) ||
            ...);
  }
  (std::make_index_sequence<kCompiledConfigs<Config>.size()>{});
}

/// A config as named values, in the order of its axes.
template <class Config>
Params to_params(const Config& config) {
  Params params;
  detail::for_each_axis<Config>([&](const auto& a) {
    Param param{std::string(a.name), detail::axis_value_text(config.*(a.member))};
    params.push_back(std::move(param));
  });
  return params;
}

/// The reverse of to_params. Axes that `params` does not name keep their defaults. Throws
/// InvalidArgument for a name that is not an axis, a value that is not one of the axis's, or a
/// combination that is not compiled.
template <class Config>
Config from_params(const Params& params) {
  Config config{};
  std::vector<std::string> names;
  detail::for_each_axis<Config>([&](const auto& a) {
    names.emplace_back(a.name);
    const std::string* given = find_param(params, a.name);
    if (given == nullptr) return;
    std::string legal;
    for (const auto& value : a.values) {
      const std::string text = detail::axis_value_text(value);
      if (text == *given) {
        config.*(a.member) = value;
        return;
      }
      legal += (legal.empty() ? "" : ", ") + text;
    }
    throw InvalidArgument(str("config: ", a.name, "=", *given, ": expected one of ", legal));
  });
  for (const Param& param : params) {
    bool known = false;
    for (const std::string& name : names) known = known || name == param.name;
    if (!known) {
      throw InvalidArgument(
          str("config: no parameter '", param.name, "'", did_you_mean(param.name, names)));
    }
  }
  if (!detail::compiles(config)) {
    throw InvalidArgument(str("config: ", to_text(to_params(config)), " is not compiled"));
  }
  return config;
}

/// One axis for people: its name, its values as text, and what it is.
struct AxisInfo {
  std::string name;
  std::vector<std::string> values;
  AxisKind kind = AxisKind::kLaunch;
};

template <class Config>
std::vector<AxisInfo> axis_infos() {
  std::vector<AxisInfo> infos;
  detail::for_each_axis<Config>([&](const auto& a) {
    AxisInfo info{std::string(a.name), {}, a.kind};
    for (const auto& value : a.values) info.values.push_back(detail::axis_value_text(value));
    infos.push_back(std::move(info));
  });
  return infos;
}

}  // namespace attune
