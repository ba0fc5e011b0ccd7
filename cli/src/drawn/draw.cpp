#include "drawn/draw.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <random>

#include <attune/core/error.hpp>

#include "program/exit_code.hpp"

namespace attune::cli {
namespace {

/// Numbers that are the same on every machine, which the standard's distributions are not.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
  bool chance(double share) { return unit() < share; }
  std::int64_t log_uniform(double most) {
    return std::llround(std::floor(std::exp2(unit() * std::log2(most))));
  }
  template <class Values>
  const auto& of(const Values& values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(below(values.size())));
  }
  const char* of(std::initializer_list<const char*> values) {
    return *(values.begin() + below(values.size()));
  }

 private:
  double unit() { return static_cast<double>(random_() >> 11U) * 0x1p-53; }

  std::mt19937_64 random_;
};

std::string channels(Dice& dice) {
  constexpr double kOdd = 0.125;
  if (dice.chance(kOdd)) return std::to_string(16 + dice.below(497));
  return dice.of(point_axis("K").values);
}

void set_field(Point& point, std::string_view name, const std::string& value) {
  if (name == "D") {
    point.set("K", value);
    point.set("V", value);
  } else {
    point.set(name, value);
  }
}

}  // namespace

PointDraw::PointDraw(std::uint64_t seed, Spec within, Affordable affordable)
    : seed_(seed), within_(std::move(within)), affordable_(std::move(affordable)) {
  if (within_.op.empty()) return;
  const Point forward;
  Point backward;
  backward.set("pass", "bwd");
  const bool is_backward = within_.op == backward.problem().op;
  if (!is_backward && within_.op != forward.problem().op) {
    throw UsageError(str("'", within_.op, "': expected ", forward.problem().op, " or ",
                         backward.problem().op, ", whose problems are drawn"));
  }
  add_axis(within_, "pass", is_backward ? "bwd" : "fwd");
}

bool PointDraw::is_fixed(std::string_view field) const {
  const bool channels = field == "K" || field == "V";
  return std::ranges::any_of(within_.axes, [&](const SpecAxis& axis) {
    return axis.name == field || (channels && axis.name == "D") ||
           (field == "group" && axis.name == "Hkv");
  });
}

Point PointDraw::with_fixed(Point point) const {
  for (const SpecAxis& axis : within_.axes) set_field(point, axis.name, axis.values.front());
  return point;
}

Point PointDraw::attempt(std::uint64_t stream) const {
  Dice dice(stream);
  Point point;
  point.seed = 1 + dice.below(99);
  point.set("pass", dice.chance(1.0 / 3) ? "bwd" : "fwd");
  point.set("dtype", dice.of({"bf16", "bf16", "bf16", "f16", "f32"}));
  point.set("gate", dice.of({"none", "g", "gamma", "gk", "gk", "gv", "g+gk", "g+gamma", "gk+gv",
                             "gamma+gk", "gamma+gv", "g+gv"}));
  point.set("gate_dtype", dice.chance(0.4) ? "io" : "f32");
  point.set("K", channels(dice));
  point.set("V", dice.chance(0.5) ? point["K"] : channels(dice));
  point.set("H", dice.of(point_axis("H").values));
  if (dice.chance(0.2)) point.set("group", dice.of({"2", "4", "8"}));
  const std::int64_t tokens = dice.log_uniform(double{1 << 20});
  const std::int64_t batch = std::min(tokens, dice.log_uniform(64));
  const std::int64_t sequences = std::min(tokens, dice.log_uniform(256));
  const bool packed = is_fixed("N") || (dice.chance(0.25) && !is_fixed("B"));
  if (packed) {
    point.set("N", sequences);
    point.set("T", tokens);
  } else {
    point.set("B", batch);
    point.set("T", tokens / batch);
  }
  for (const auto& [field, share] :
       {std::pair{"reverse", 0.25}, std::pair{"h0", 0.4}, std::pair{"ht", 0.5}}) {
    point.set(field, dice.chance(share) ? "yes" : "no");
  }
  point.set("layout", dice.chance(0.15) ? "bhtd" : "bthd");
  for (const SpecAxis& axis : within_.axes) set_field(point, axis.name, dice.of(axis.values));
  const std::int64_t group = point.number("group");
  if (!is_fixed("group") && point.number("H") % group != 0) point.set("group", 1);
  return point;
}

std::optional<Point> PointDraw::made_affordable(Point point) const {
  for (;;) {
    if (affordable_(point.problem())) return point;
    const std::int64_t heads = point.number("H"), tokens = point.number("T");
    if (heads > 1 && !is_fixed("H")) {
      const std::int64_t group = is_fixed("group") ? 1 : point.number("group");
      point.set("H", heads / 2);
      if (heads / 2 % group != 0) point.set("group", 1);
    } else if (tokens > 1 && !is_fixed("T")) {
      point.set("T", tokens / 2);
    } else if (point.number("B") > 1 && !is_fixed("B")) {
      point.set("B", point.number("B") / 2);
    } else {
      return std::nullopt;
    }
  }
}

std::optional<Point> PointDraw::point(std::uint64_t index) const {
  constexpr std::uint64_t kAttempts = 50;
  for (std::uint64_t i = 0; i < kAttempts; ++i) {
    const std::uint64_t stream = (seed_ * 1'000'003 + index) * kAttempts + i;
    if (auto made = made_affordable(attempt(stream))) return made;
  }
  return std::nullopt;
}

}  // namespace attune::cli
