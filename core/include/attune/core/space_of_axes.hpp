// The space that the axes of a config span: config_space.hpp, filled in from its declaration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include <attune/core/config_axes.hpp>
#include <attune/core/config_space.hpp>

namespace attune {

namespace detail {

template <class Config>
ConfigBlob to_blob(const Config& config) {
  ConfigBlob blob;
  if constexpr (!std::is_empty_v<Config>) {  // an empty struct's one byte has no value
    std::memcpy(blob.bytes.data(), &config, sizeof config);
  }
  return blob;
}

template <class Config>
Config from_blob(const ConfigBlob& blob) {
  Config config;
  std::memcpy(&config, blob.bytes.data(), sizeof config);
  return config;
}

/// Calls visit(axis) for the axis at `wanted`.
template <class Config, class Visit>
void with_axis(std::size_t wanted, const Visit& visit) {
  std::size_t at = 0;
  for_each_axis<Config>([&](const auto& a) {
    if (at++ == wanted) visit(a);
  });
}

template <class Config>
void set_axis(ConfigBlob& blob, std::size_t axis, std::size_t index) {
  Config config = from_blob<Config>(blob);
  with_axis<Config>(axis, [&](const auto& a) { config.*(a.member) = a.values[index]; });
  blob = to_blob(config);
}

template <class Config>
std::size_t index_on_axis(const ConfigBlob& blob, std::size_t axis) {
  const Config config = from_blob<Config>(blob);
  std::size_t index = 0;
  with_axis<Config>(axis, [&](const auto& a) {
    while (index < a.values.size() && a.values[index] != config.*(a.member)) ++index;
  });
  return index;
}

template <class Config>
bool axis_applies(const ConfigBlob& blob, std::size_t axis) {
  const Config config = from_blob<Config>(blob);
  bool applies = true;
  with_axis<Config>(axis, [&](const auto& a) { applies = a.applies(config); });
  return applies;
}

/// The rules of a config's space, each with its test: constraints, then the conditions of axes,
/// then which instances exist.
template <class Config, class Add>
void for_each_rule(const Add& add) {
  constexpr auto kBit = [](std::size_t axis) { return std::uint64_t{1} << axis; };
  std::apply(
      [&](const auto&... constraints) {
        [[maybe_unused]] const auto add_constraint = [&](const auto& constraint) {
          const std::uint64_t axes =
              std::apply([&](auto... members) { return (kBit(axis_of<Config>(members)) | ...); },
                         constraint.members);
          add(ConfigSpace::Rule{constraint.text, axes},
              [&](const Config& c, const void* problem) { return keeps(constraint, c, problem); });
        };
        (add_constraint(constraints), ...);
      },
      constraints_of<Config>());
  std::uint64_t compiled = 0;
  std::size_t at = 0;
  for_each_axis<Config>([&](const auto& a) {
    if (a.kind == AxisKind::kCompiled) compiled |= kBit(at);
    if constexpr (requires { a.applies.member; }) {
      const std::uint64_t axes = kBit(at) | kBit(axis_of<Config>(a.applies.member));
      add(ConfigSpace::Rule{a.name, axes}, [&](const Config& c, const void*) {
        return a.applies(c) || c.*(a.member) == Config{}.*(a.member);
      });
    }
    ++at;
  });
  if constexpr (requires(const Config& c) { Config::compiles(c); }) {
    add(ConfigSpace::Rule{"which instances are compiled", compiled},
        [](const Config& c, const void*) { return Config::compiles(c); });
  }
}

template <class Config>
bool keeps_rule(std::size_t rule, const ConfigBlob& blob, const void* problem) {
  const Config config = from_blob<Config>(blob);
  bool kept = true;
  std::size_t at = 0;
  for_each_rule<Config>([&](const ConfigSpace::Rule&, const auto& test) {
    if (at++ == rule) kept = test(config, problem);
  });
  return kept;
}

}  // namespace detail

/// The space of a config's axes.
template <class Config>
const ConfigSpace& config_space() {
  static const ConfigSpace space = [] {
    ConfigSpace made;
    const ConfigBlob standard = detail::to_blob(Config{});
    detail::for_each_axis<Config>([&](const auto& a) {
      const std::size_t at = made.axes.size();
      made.axes.push_back(
          {static_cast<std::uint32_t>(a.values.size()),
           static_cast<std::uint32_t>(detail::index_on_axis<Config>(standard, at)),
           !std::is_same_v<std::remove_cvref_t<decltype(a.applies)>, detail::Always>});
    });
    detail::for_each_rule<Config>(
        [&](const ConfigSpace::Rule& rule, const auto&) { made.rules.push_back(rule); });
    made.standard = standard;
    made.set = detail::set_axis<Config>;
    made.index = detail::index_on_axis<Config>;
    made.applies = detail::axis_applies<Config>;
    made.keeps = detail::keeps_rule<Config>;
    return made;
  }();
  return space;
}

}  // namespace attune
