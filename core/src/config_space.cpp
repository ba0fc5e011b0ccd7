#include <bit>

#include <attune/core/config_space.hpp>

namespace attune {
namespace {

/// A walk over the points of some axes, the last one outermost: the others have their defaults.
class Walk {
 public:
  Walk(const ConfigSpace& space, const void* problem, std::uint64_t axes, std::uint64_t steps,
       FunctionRef<bool(const ConfigBlob&)> visit, std::uint64_t first = 0)
      : space_(space), problem_(problem), axes_(axes), steps_(steps), visit_(visit) {
    for (const ConfigSpace::Axis& axis : space.axes) {
      first_.push_back(first % axis.values);
      first /= axis.values;
    }
  }

  bool run() { return from(space_.axes.size(), 0, space_.standard); }

 private:
  /// All points below a config of which the axes `set` are set, and those from `end` on looked at.
  bool from(std::size_t end, std::uint64_t set, ConfigBlob config) {
    if (end == 0) return visit_(config);
    const std::size_t axis = end - 1;
    const std::uint64_t bit = std::uint64_t{1} << axis;
    if ((axes_ & bit) == 0) return from(axis, set, config);
    const std::size_t values = space_.axes[axis].values;
    for (std::size_t i = 0; i < values; ++i) {
      if (steps_ == 0) return false;
      --steps_;
      space_.set(config, axis, (first_[axis] + i) % values);
      if (keeps_rules(config, bit, set | bit) && !from(axis, set | bit, config)) return false;
    }
    return true;
  }

  /// Those that can be asked now, and could not before `latest` was set.
  bool keeps_rules(const ConfigBlob& config, std::uint64_t latest, std::uint64_t set) const {
    for (std::size_t r = 0; r < space_.rules.size(); ++r) {
      const std::uint64_t needs = space_.rules[r].axes;
      if ((needs & latest) == 0 || (needs & ~set) != 0) continue;
      if (!space_.keeps(r, config, problem_)) return false;
    }
    return true;
  }

  const ConfigSpace& space_;
  const void* problem_;
  std::uint64_t axes_;
  std::uint64_t steps_;
  FunctionRef<bool(const ConfigBlob&)> visit_;
  std::vector<std::size_t> first_;  // by axis: the index that is set first
};

constexpr std::uint64_t kAllAxes = ~std::uint64_t{0};

/// The axes that rules connect with `axis`, itself included.
std::uint64_t connected_with(const ConfigSpace& space, std::size_t axis) {
  std::uint64_t part = std::uint64_t{1} << axis;
  for (std::uint64_t before = 0; before != part;) {
    before = part;
    for (const ConfigSpace::Rule& rule : space.rules) {
      if ((rule.axes & part) != 0) part |= rule.axes;
    }
  }
  return part;
}

}  // namespace

std::uint64_t ConfigSpace::size() const {
  std::uint64_t points = 1;
  for (const Axis& axis : axes) points *= axis.values;
  return points;
}

ConfigBlob ConfigSpace::at(std::uint64_t number) const {
  ConfigBlob config = standard;
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    set(config, axis, number % axes[axis].values);
    number /= axes[axis].values;
  }
  return config;
}

std::optional<std::uint64_t> ConfigSpace::number_of(const ConfigBlob& config) const {
  std::uint64_t number = 0;
  for (std::size_t axis = axes.size(); axis-- > 0;) {
    const std::size_t at = index(config, axis);
    if (at >= axes[axis].values) return std::nullopt;
    number = number * axes[axis].values + at;
  }
  return number;
}

ConfigBlob ConfigSpace::without_meaningless(ConfigBlob config) const {
  // The condition of an axis may look at one that is conditional itself.
  for (std::size_t changes = 1; changes > 0;) {
    changes = 0;
    for (std::size_t axis = 0; axis < axes.size(); ++axis) {
      if (!axes[axis].conditional || applies(config, axis)) continue;
      if (index(config, axis) == axes[axis].standard) continue;
      set(config, axis, axes[axis].standard);
      ++changes;
    }
  }
  return config;
}

const ConfigSpace::Rule* ConfigSpace::broken(const ConfigBlob& config, const void* problem) const {
  for (std::size_t r = 0; r < rules.size(); ++r) {
    if (!keeps(r, config, problem)) return &rules[r];
  }
  return nullptr;
}

bool visit_points(const ConfigSpace& space, const void* problem, std::uint64_t steps,
                  FunctionRef<bool(const ConfigBlob&)> visit, std::uint64_t first) {
  return Walk(space, problem, kAllAxes, steps, visit, first).run();
}

CandidateCount count_points(const ConfigSpace& space, const void* problem, std::uint64_t steps) {
  CandidateCount all{1, true};
  std::uint64_t counted = 0;
  for (std::size_t axis = 0; axis < space.axes.size(); ++axis) {
    if ((counted >> axis & 1U) != 0) continue;
    const std::uint64_t part = connected_with(space, axis);
    counted |= part;
    std::uint64_t points = 0;
    std::uint64_t most = 1;
    for (std::size_t a = 0; a < space.axes.size(); ++a) {
      if ((part >> a & 1U) != 0) most *= space.axes[a].values;
    }
    const bool is_alone = std::has_single_bit(part) && [&] {
      for (const ConfigSpace::Rule& rule : space.rules) {
        if (rule.axes == part) return false;
      }
      return true;
    }();
    const auto count = [&](const ConfigBlob&) { return ++points, true; };
    if (is_alone) {
      points = most;
    } else if (!Walk(space, problem, part, steps, count).run()) {
      points = most;
      all.is_exact = false;
    }
    all.count *= points;
  }
  return all;
}

}  // namespace attune
