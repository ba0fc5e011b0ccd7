#include "drawn/point.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include <attune/core/error.hpp>

namespace attune::cli {
namespace {

constexpr std::string_view kForward = "recurrent_attention";
constexpr std::string_view kBackward = "recurrent_attention.backward";

std::int64_t to_number(std::string_view text) {
  std::int64_t value = 0;
  if (!parse_integer(text, value)) throw InvalidArgument(str("'", text, "': expected a number"));
  return value;
}

std::vector<std::string> powers_of_two(std::int64_t most) {
  std::vector<std::string> values;
  for (std::int64_t value = 1; value <= most; value *= 2) values.push_back(std::to_string(value));
  return values;
}

std::vector<PointAxis> make_axes() {
  const std::vector<std::string> channels{"16",  "32",  "48",  "64",  "80",  "96",  "128",
                                          "160", "192", "256", "320", "384", "448", "512"};
  const std::vector<std::string> no_yes{"no", "yes"};
  return {{"B", powers_of_two(256)},
          {"T", powers_of_two(std::int64_t{1} << 20)},
          {"N", powers_of_two(256)},
          {"H", {"1", "2", "4", "8", "12", "16", "24", "32", "48", "64", "96", "128"}},
          {"group", powers_of_two(128)},
          {"K", channels},
          {"V", channels},
          {"dtype", {"bf16", "f16", "f32"}},
          {"gate",
           {"none", "gamma", "g", "g+gamma", "gk", "g+gk", "gamma+gk", "gv", "g+gv", "gamma+gv",
            "gk+gv"}},
          {"gate_dtype", {"f32", "io"}},
          {"reverse", no_yes},
          {"h0", no_yes},
          {"ht", no_yes},
          {"layout", {"bthd", "bhtd"}}};
}

bool is_number(const PointAxis& axis) { return axis.values.back().front() <= '9'; }

/// How many of the single gates stand in one set and not in the other.
int gates_apart(std::string_view a, std::string_view b) {
  const auto bits = [](std::string_view gate) {
    const std::string joined = str('+', gate, '+');
    unsigned set = 0, bit = 1;
    for (const char* name : {"+g+", "+gamma+", "+gk+", "+gv+"}) {
      if (joined.find(name) != std::string::npos) set |= bit;
      bit *= 2;
    }
    return set;
  };
  return std::popcount(bits(a) ^ bits(b));
}

/// The values of an axis beside one, or around it.
std::vector<std::string> beside(const PointAxis& axis, const std::string& value) {
  std::vector<std::string> found;
  if (axis.name == "gate") {
    std::ranges::copy_if(axis.values, std::back_inserter(found),
                         [&](const std::string& other) { return gates_apart(other, value) == 1; });
  } else if (is_number(axis)) {
    const std::int64_t number = to_number(value);
    const auto at_least = std::ranges::lower_bound(axis.values, number, {}, to_number);
    const auto above = std::ranges::upper_bound(axis.values, number, {}, to_number);
    if (at_least != axis.values.begin()) found.push_back(*std::prev(at_least));
    if (above != axis.values.end()) found.push_back(*above);
  } else {
    const auto at = std::ranges::find(axis.values, value);
    if (at == axis.values.end()) return found;
    if (at != axis.values.begin()) found.push_back(*std::prev(at));
    if (std::next(at) != axis.values.end()) found.push_back(*std::next(at));
  }
  return found;
}

/// Whether a field says anything of the point's problem.
bool matters(const Point& point, std::string_view field) {
  const bool packed = point.number("N") > 0;
  if (field == "B" || field == "layout") return !packed;
  if (field == "N") return packed;
  if (field == "gate_dtype") {
    const std::string& gate = point["gate"];
    return point["dtype"] != "f32" && gate != "none" && gate != "gamma";
  }
  return true;
}

Point point_of(std::string_view text) {
  Point point;
  for (Param& field : parse_params(text, ' ')) point.set(field.name, std::move(field.value));
  return point;
}

}  // namespace

Point::Point()
    : fields_(parse_params("pass=fwd B=1 T=2048 N=0 H=16 group=1 K=128 V=128 dtype=bf16 gate=gk "
                           "gate_dtype=io reverse=no h0=no ht=no layout=bthd",
                           ' ')) {}

const std::string& Point::operator[](std::string_view name) const {
  if (const std::string* value = find_param(fields_, name)) return *value;
  throw std::out_of_range(str("a point has no field ", name));
}

std::int64_t Point::number(std::string_view name) const { return to_number((*this)[name]); }

void Point::set(std::string_view name, std::string value) {
  Params& params = find_param(fields_, name) != nullptr ? fields_ : others_;
  const auto at = std::ranges::find(params, name, &Param::name);
  if (at == params.end()) {
    params.push_back({std::string(name), std::move(value)});
  } else {
    at->value = std::move(value);
  }
}

NamedProblem Point::problem() const {
  NamedProblem named{std::string((*this)["pass"] == "bwd" ? kBackward : kForward), {}};
  const std::int64_t group = number("group");
  for (const Param& field : fields_) {
    if (field.name == "pass" || !matters(*this, field.name)) continue;
    const bool own = find_param(others_, field.name == "group" ? "Hkv" : field.name) != nullptr;
    if (own) continue;
    if (field.name != "group") {
      named.params.push_back(field);
    } else if (group > 1) {
      named.params.push_back(
          {"Hkv", std::to_string(std::max<std::int64_t>(1, number("H") / group))});
    }
  }
  named.params.insert(named.params.end(), others_.begin(), others_.end());
  return named;
}

const std::vector<PointAxis>& point_axes() {
  static const std::vector<PointAxis> axes = make_axes();
  return axes;
}

const PointAxis& point_axis(std::string_view name) {
  return *std::ranges::find(point_axes(), name, &PointAxis::name);
}

std::vector<Neighbour> neighbours_of(const Point& point) {
  std::vector<Neighbour> all;
  for (const PointAxis& axis : point_axes()) {
    if (!matters(point, axis.name)) continue;
    for (std::string& value : beside(axis, point[axis.name])) {
      Point moved = point;
      moved.set(axis.name, std::move(value));
      all.push_back({axis.name, std::move(moved)});
    }
  }
  return all;
}

std::vector<Point> anchors() {
  return {point_of("B=4 T=2048"),
          point_of("B=4 T=2048 pass=bwd"),
          point_of("B=4 T=2048 gate=gamma"),
          point_of("B=4 T=2048 H=16 K=64 V=64 dtype=f32 gate=g pass=bwd"),
          point_of("T=16384 N=16"),
          point_of("B=2 T=4096 H=4 K=256 V=256 gate=gamma pass=bwd")};
}

}  // namespace attune::cli
