#include "search/space_search.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace attune::tuning {
namespace {

constexpr std::size_t kFirst = 8;        // points by chance before the best of them are varied
constexpr std::size_t kBest = 12;        // that are varied
constexpr std::uint64_t kByChance = 12;  // one in so many is drawn by chance
constexpr int kVariations = 48;          // tried for one that is new

// Where those that break no rule are few: points drawn, then walks from points of chance, then
// points drawn before it is given up: some hundredths of a second.
constexpr int kDraws = 512;
constexpr int kDescents = 8;
constexpr std::uint64_t kDescentSteps = 50'000;
constexpr int kLastDraws = 100'000;

}  // namespace

SpaceSearch::SpaceSearch(const ConfigSpace& space, const void* problem, Admits admits,
                         std::uint64_t seed)
    : space_(space),
      problem_(problem),
      admits_(std::move(admits)),
      order_(space.size(), seed),
      random_(seed) {
  for (std::size_t axis = 0; axis < space.axes.size(); ++axis) {
    if (space.axes[axis].values > 1) movable_.push_back(axis);
  }
}

std::optional<ConfigBlob> SpaceSearch::next() {
  if (learned_ >= kFirst && !best_.empty() && !movable_.empty() && below(kByChance) != 0) {
    for (int i = 0; i < kVariations; ++i) {
      const ConfigBlob config = vary(space_.at(parent().number));
      if (take(config)) return config;
    }
  }
  return draw();
}

void SpaceSearch::learn(const ConfigBlob& config, double us) {
  const std::optional<std::uint64_t> number = space_.number_of(config);
  if (!number) return;
  seen_.insert(*number);
  ++learned_;
  if (!std::isfinite(us)) return;
  const auto place = std::upper_bound(best_.begin(), best_.end(), us,
                                      [](double a, const Known& b) { return a < b.us; });
  best_.insert(place, {*number, us});
  if (best_.size() > kBest) best_.pop_back();
}

/// Whether a config is new and may be tried; it counts as given out then.
bool SpaceSearch::take(const ConfigBlob& config) {
  const std::optional<std::uint64_t> number = space_.number_of(config);
  if (!number || seen_.contains(*number)) return false;
  if (space_.broken(config, problem_) != nullptr || !admits_(config)) return false;
  seen_.insert(*number);
  return true;
}

std::optional<ConfigBlob> SpaceSearch::draw() {
  std::optional<ConfigBlob> found;
  if (gave_up_) return found;
  found = draw(kDraws);
  for (int i = 0; i < kDescents && !found; ++i) found = descend();
  if (!found) found = draw(kLastDraws);
  gave_up_ = !found;
  return found;
}

/// The first new one of so many points.
std::optional<ConfigBlob> SpaceSearch::draw(int points) {
  for (int i = 0; i < points && drawn_ < order_.size(); ++i) {
    const ConfigBlob config = space_.at(order_.at(drawn_++));
    if (take(config)) return config;
  }
  return std::nullopt;
}

/// The first new point of a walk that begins at a point of chance.
std::optional<ConfigBlob> SpaceSearch::descend() {
  std::optional<ConfigBlob> found;
  const auto visit = [&](const ConfigBlob& config) {
    if (take(config)) found = config;
    return !found;
  };
  visit_points(space_, problem_, kDescentSteps, visit, below(order_.size()));
  return found;
}

ConfigBlob SpaceSearch::vary(ConfigBlob config) {
  const std::uint64_t kind = below(8);
  if (kind == 0 && best_.size() > 1) {
    config = mix(config, space_.at(parent().number));
  } else {
    change_an_axis(config);
    if (kind >= 6) change_an_axis(config);
  }
  return repaired(space_.without_meaningless(config));
}

/// `config`, with another value on an axis of the first rule that it breaks, where one mends it.
ConfigBlob SpaceSearch::repaired(ConfigBlob config) {
  const ConfigSpace::Rule* broken = space_.broken(config, problem_);
  if (broken == nullptr) return config;
  std::vector<std::size_t> axes;
  for (const std::size_t axis : movable_) {
    if ((broken->axes >> axis & 1U) != 0) axes.push_back(axis);
  }
  if (axes.empty()) return config;
  const std::size_t axis = axes[below(axes.size())];
  const std::uint64_t values = space_.axes[axis].values;
  const std::uint64_t first = below(values);
  for (std::uint64_t i = 0; i < values; ++i) {
    space_.set(config, axis, (first + i) % values);
    if (space_.broken(config, problem_) == nullptr) break;
  }
  return config;
}

/// Each axis of one of the two.
ConfigBlob SpaceSearch::mix(ConfigBlob config, const ConfigBlob& other) {
  for (const std::size_t axis : movable_) {
    if (below(2) == 0) space_.set(config, axis, space_.index(other, axis));
  }
  return config;
}

void SpaceSearch::change_an_axis(ConfigBlob& config) {
  const std::size_t axis = movable_[below(movable_.size())];
  const std::uint64_t values = space_.axes[axis].values;
  const std::uint64_t at = space_.index(config, axis);
  std::uint64_t to = (at + 1 + below(values - 1)) % values;  // any other
  if (below(2) == 0) to = below(2) == 0 && at > 0 ? at - 1 : std::min(at + 1, values - 1);
  if (to == at) to = at - 1;  // it was the last one
  space_.set(config, axis, to);
}

/// One of the best, each half as often as the one before it.
const SpaceSearch::Known& SpaceSearch::parent() {
  std::size_t rank = 0;
  while (rank + 1 < best_.size() && below(2) == 0) ++rank;
  return best_[rank];
}

std::uint64_t SpaceSearch::below(std::uint64_t count) { return random_() % count; }

}  // namespace attune::tuning
