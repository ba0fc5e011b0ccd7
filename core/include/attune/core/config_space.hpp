// The points that a kernel's axes span, without the kernel's types and without a list of them.
//
// A point has a number: the indices of its values, of the first axis fastest. Rules (the kernel's
// constraints, the conditions of its axes, which instances exist) leave points out; they are asked
// as soon as the axes that they look at are set, so what all points of a part of the space break is
// never walked. Numbers are good for one process: nothing that is stored has one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <attune/core/function_ref.hpp>

namespace attune {

/// A config by value without its type: what caches and plans hold, so that a launch parses nothing.
struct ConfigBlob {
  alignas(8) std::array<std::byte, 64> bytes{};
};

struct ConfigSpace {
  struct Axis {
    std::uint32_t values = 1;    // how many
    std::uint32_t standard = 0;  // the index of the default
    bool conditional = false;    // has its default alone where its condition does not hold
  };
  struct Rule {
    std::string_view text;
    std::uint64_t axes = 0;  // those that it looks at: bit i is axis i
  };
  std::vector<Axis> axes;
  std::vector<Rule> rules;
  ConfigBlob standard;
  void (*set)(ConfigBlob& config, std::size_t axis, std::size_t index) = nullptr;
  /// The index of an axis's value in a config, or the number of its values.
  std::size_t (*index)(const ConfigBlob& config, std::size_t axis) = nullptr;
  bool (*applies)(const ConfigBlob& config, std::size_t axis) = nullptr;
  /// `problem` is of the kernel's op.
  bool (*keeps)(std::size_t rule, const ConfigBlob& config, const void* problem) = nullptr;

  /// All points, those that break rules too.
  std::uint64_t size() const;
  ConfigBlob at(std::uint64_t number) const;
  /// Nothing for a config with a value that is not of its axis.
  std::optional<std::uint64_t> number_of(const ConfigBlob& config) const;
  /// `config`, with the default in axes whose condition does not hold.
  ConfigBlob without_meaningless(ConfigBlob config) const;
  /// The first rule that a config breaks, or null.
  const Rule* broken(const ConfigBlob& config, const void* problem) const;
};

/// Calls visit(config) for each point that breaks no rule until it returns false or `steps` values
/// of axes were set. In the order of their numbers, or, on each axis, with the value of the point
/// `first` first. Whether all points were visited.
bool visit_points(const ConfigSpace& space, const void* problem, std::uint64_t steps,
                  FunctionRef<bool(const ConfigBlob&)> visit, std::uint64_t first = 0);

/// A number of candidates, or a bound of it.
struct CandidateCount {
  std::uint64_t count = 0;
  bool is_exact = true;  // false: at most `count`
};

/// How many points break no rule. Axes that no rule connects are counted apart, so that millions
/// of points take few steps; parts that take more than `steps` are counted without their rules.
CandidateCount count_points(const ConfigSpace& space, const void* problem, std::uint64_t steps);

}  // namespace attune
