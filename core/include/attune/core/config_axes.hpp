// What follows from the axes and constraints of a config (axis.hpp): its compiled instances and the
// dispatch to one of them, and its texts.
//
//   static constexpr bool compiles(const BlockedConfig& c);   // optional: which instances exist
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

#include <attune/core/axis.hpp>
#include <attune/core/axis_checks.hpp>
#include <attune/core/error.hpp>
#include <attune/core/params.hpp>

namespace attune {

namespace detail {

template <class Config, class Visit>
constexpr void for_each_axis(Visit&& visit) {
  static_assert(check_config<Config>());
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

template <class Config, class Member>
constexpr bool is_compiled_axis(Member member) {
  constexpr auto kKinds = std::apply(
      [](const auto&... axes) { return std::array<AxisKind, sizeof...(axes)>{axes.kind...}; },
      Config::axes());
  return kKinds[axis_of<Config>(member)] == AxisKind::kCompiled;
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

/// Whether the axes that mean nothing in `config` have their defaults.
template <class Config>
constexpr bool says_each_once(const Config& config) {
  bool once = true;
  const Config standard{};
  for_each_axis<Config>([&](const auto& a) {
    if (!a.applies(config) && config.*(a.member) != standard.*(a.member)) once = false;
  });
  return once;
}

/// The text of the first constraint that `config` breaks whatever the problem is, or "". Of those
/// over compiled axes alone when `compiled_only`.
template <class Config>
constexpr std::string_view broken_constraint(const Config& config, bool compiled_only) {
  std::string_view broken;
  std::apply(
      [&](const auto&... constraints) {
        [[maybe_unused]] const auto look = [&](const auto& constraint) {
          const bool asked =
              !compiled_only ||
              std::apply([](auto... members) { return (is_compiled_axis<Config>(members) && ...); },
                         constraint.members);
          if (broken.empty() && asked && !keeps(constraint, config, nullptr))
            broken = constraint.text;
        };
        (look(constraints), ...);
      },
      constraints_of<Config>());
  return broken;
}

template <class Config>
constexpr bool is_instance(const Config& config) {
  return says_each_once(config) && broken_constraint(config, true).empty() && compiles(config);
}

template <class Config>
constexpr std::size_t compiled_count() {
  std::size_t count = 0;
  for (std::size_t i = 0; i < point_count<Config>(true); ++i) {
    count += is_instance(point<Config>(i, true)) ? 1 : 0;
  }
  return count;
}

template <class Config>
constexpr auto compiled_configs() {
  std::array<Config, compiled_count<Config>()> configs{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < point_count<Config>(true); ++i) {
    if (const Config config = point<Config>(i, true); is_instance(config)) {
      configs[count++] = config;
    }
  }
  return configs;
}

}  // namespace detail

/// The instances that exist: all points of the compiled axes that compiles() keeps, launch axes at
/// their defaults.
template <class Config>
inline constexpr auto kCompiledConfigs = detail::compiled_configs<Config>();

/// Every point of all axes that compiles() and the constraints keep, whatever the problem is: for
/// spaces that are known to be small.
template <class Config>
std::vector<Config> all_configs() {
  std::vector<Config> configs;
  for (std::size_t i = 0; i < detail::point_count<Config>(false); ++i) {
    const Config config = detail::point<Config>(i, false);
    if (detail::is_instance(config) && detail::broken_constraint(config, false).empty()) {
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

/// A config as named values, in the order of its axes; without those that mean nothing in it.
template <class Config>
Params to_params(const Config& config) {
  Params params;
  detail::for_each_axis<Config>([&](const auto& a) {
    if (!a.applies(config)) return;
    Param param{std::string(a.name), detail::axis_value_text(config.*(a.member))};
    params.push_back(std::move(param));
  });
  return params;
}

/// The reverse of to_params. Axes that `params` does not name keep their defaults. Throws
/// InvalidArgument for a name that is not an axis, a value that is not one of the axis's, one that
/// means nothing beside the others, or a combination that breaks a constraint or is not compiled.
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
      if (detail::is_axis_value(value, *given)) {
        config.*(a.member) = value;
        return;
      }
      legal += (legal.empty() ? "" : ", ") + detail::axis_value_text(value);
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
  detail::for_each_axis<Config>([&](const auto& a) {
    if (!a.applies(config) && config.*(a.member) != Config{}.*(a.member)) {
      throw InvalidArgument(str("config: ", a.name, "=",
                                detail::axis_value_text(config.*(a.member)),
                                " means nothing beside ", to_text(to_params(config))));
    }
  });
  if (const std::string_view broken = detail::broken_constraint(config, false); !broken.empty()) {
    throw InvalidArgument(str("config: ", to_text(to_params(config)), " breaks ", broken));
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
