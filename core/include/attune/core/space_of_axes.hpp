// The space that the axes of a config span: config_space.hpp, filled in from its declaration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

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

constexpr std::uint64_t bit_of(std::size_t axis) { return std::uint64_t{1} << axis; }

/// The axes that the conditions of `axes` look at.
template <class Config>
constexpr std::uint64_t axes_of_conditions(std::uint64_t axes) {
  std::uint64_t looked_at = 0;
  for_each_axis<Config>([&, at = std::size_t{0}](const auto& a) mutable {
    const bool asked = (axes & bit_of(at++)) != 0;
    if constexpr (requires { a.applies.member; }) {
      if (asked) looked_at |= bit_of(axis_of<Config>(a.applies.member));
    }
  });
  return looked_at;
}

/// Whether all of `axes` mean something in `config`.
template <class Config>
bool all_apply(std::uint64_t axes, const Config& config) {
  bool all = true;
  for_each_axis<Config>([&, at = std::size_t{0}](const auto& a) mutable {
    if ((axes & bit_of(at++)) != 0 && !a.applies(config)) all = false;
  });
  return all;
}

/// "block only where order=rows", of a conditional axis.
template <class Config, class ConditionalAxis>
std::string condition_text(const ConditionalAxis& axis) {
  std::string_view other;
  with_axis<Config>(axis_of<Config>(axis.applies.member), [&](const auto& a) { other = a.name; });
  return str(axis.name, " only where ", other, '=', axis_value_text(axis.applies.value));
}

/// Calls add(text(), axes that are looked at, test) for each rule of a config's space: constraints,
/// then the conditions of axes, then which instances exist. A constraint that asks for the problem
/// is not asked where an axis that it names means nothing.
template <class Config, class Add>
void for_each_rule(const Add& add) {
  const auto add_constraint = [&]<class Predicate, class... Members>(
                                  const Constraint<Predicate, Members...>& constraint) {
    const std::uint64_t named =
        std::apply([](auto... members) { return (bit_of(axis_of<Config>(members)) | ...); },
                   constraint.members);
    constexpr bool kAsksForTheProblem =
        !std::is_invocable_v<Predicate,
                             decltype(std::declval<const Config&>().*std::declval<Members>())...>;
    add([&] { return std::string(constraint.text); },
        kAsksForTheProblem ? named | axes_of_conditions<Config>(named) : named,
        [&](const Config& c, const void* problem) {
          return (kAsksForTheProblem && !all_apply(named, c)) || keeps(constraint, c, problem);
        });
  };
  std::apply([&](const auto&... constraints) { (add_constraint(constraints), ...); },
             constraints_of<Config>());
  std::uint64_t compiled = 0;
  std::size_t at = 0;
  for_each_axis<Config>([&](const auto& a) {
    if (a.kind == AxisKind::kCompiled) compiled |= bit_of(at);
    if constexpr (requires { a.applies.member; }) {
      add([&] { return condition_text<Config>(a); },
          bit_of(at) | bit_of(axis_of<Config>(a.applies.member)),
          [&](const Config& c, const void*) {
            return a.applies(c) || c.*(a.member) == Config{}.*(a.member);
          });
    }
    ++at;
  });
  if constexpr (requires(const Config& c) { Config::compiles(c); }) {
    add([] { return std::string("which instances are compiled"); }, compiled,
        [](const Config& c, const void*) { return Config::compiles(c); });
  }
}

template <class Config>
bool keeps_rule(std::size_t rule, const ConfigBlob& blob, const void* problem) {
  const Config config = from_blob<Config>(blob);
  bool kept = true;
  std::size_t at = 0;
  for_each_rule<Config>([&](const auto&, std::uint64_t, const auto& test) {
    if (at++ == rule) kept = test(config, problem);
  });
  return kept;
}

}  // namespace detail

/// The space of a config's axes.
template <class Config>
const ConfigSpace& config_space() {
  static std::deque<std::string> texts;  // of the rules
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
    detail::for_each_rule<Config>([&](const auto& text, std::uint64_t axes, const auto&) {
      made.rules.push_back({texts.emplace_back(text()), axes});
    });
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
