// Which points of a large space to try, by what those tried so far took.
//
// The first points are drawn by chance, without repeats. From then on most are made of the best
// that are known: one of them with one or two axes changed, often to the value beside it, or a mix
// of two; what breaks a constraint by that is mended on another of its axes. The better a point is,
// the more often it is taken. Every twelfth is still drawn by chance, so that no part of the space
// stays out of reach. That is an evolutionary search with a local one inside (Moscato, "On
// Evolution, Search, Optimization, Genetic Algorithms and Martial Arts", 1989), which can be ended
// and gone on with at any point. By one seed the same points come, if they take the same.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <unordered_set>
#include <vector>

#include <attune/core/config_space.hpp>

#include "search/point_order.hpp"

namespace attune::tuning {

class SpaceSearch {
 public:
  /// Whether a config that breaks no rule of the space may be tried at all.
  using Admits = std::function<bool(const ConfigBlob&)>;

  /// The space and the problem outlive the search.
  SpaceSearch(const ConfigSpace& space, const void* problem, Admits admits, std::uint64_t seed);

  /// A config that was neither given out nor learned of before. Nothing when none is left, or none
  /// was found among many thousands of points.
  std::optional<ConfigBlob> next();

  /// What a config took, however it came to be tried; infinite when it is of no use.
  void learn(const ConfigBlob& config, double us);

 private:
  struct Known {
    std::uint64_t number;
    double us;
  };

  bool take(const ConfigBlob& config);
  std::optional<ConfigBlob> draw();
  std::optional<ConfigBlob> draw(int points);
  std::optional<ConfigBlob> descend();
  ConfigBlob vary(ConfigBlob config);
  ConfigBlob repaired(ConfigBlob config);
  ConfigBlob mix(ConfigBlob config, const ConfigBlob& other);
  void change_an_axis(ConfigBlob& config);
  const Known& parent();
  std::uint64_t below(std::uint64_t count);

  const ConfigSpace& space_;
  const void* problem_;
  Admits admits_;
  PointOrder order_;
  std::uint64_t drawn_ = 0;  // places of the order
  bool gave_up_ = false;     // drawing: what is left is too hard to find
  std::mt19937_64 random_;
  std::vector<std::size_t> movable_;  // axes of more than one value
  std::unordered_set<std::uint64_t> seen_;
  std::size_t learned_ = 0;
  std::vector<Known> best_;  // the best first
};

}  // namespace attune::tuning
