// Problems of recurrent attention as points of a space: what stands beside a problem is the same
// one with one field moved to its next value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <attune/core/params.hpp>

#include "problems/spec.hpp"

namespace attune::cli {

/// One problem. Besides the fields of SPEC, all of them set, it has `group`, the query heads of a
/// key and value head.
class Point {
 public:
  /// A forward pass of a plain layer: B=1 T=2048 H=16 K=128 V=128 in bf16 with a gate per channel.
  Point();

  /// Throws std::out_of_range when there is no such field.
  const std::string& operator[](std::string_view name) const;
  std::int64_t number(std::string_view name) const;
  /// A name that is none of the fields above is the op's own, and stands in the problem as it is.
  void set(std::string_view name, std::string value);
  void set(std::string_view name, std::int64_t value) { set(name, std::to_string(value)); }

  /// The op and the fields that it needs to say. It need not be legal.
  NamedProblem problem() const;

  /// Of the tensors.
  std::uint64_t seed = 1;

 private:
  Params fields_;
  Params others_;
};

/// A field with its values side by side.
struct PointAxis {
  std::string_view name;
  std::vector<std::string> values;
};
const std::vector<PointAxis>& point_axes();
const PointAxis& point_axis(std::string_view name);

struct Neighbour {
  std::string_view field;
  Point point;
};

/// The point with one field moved to its next value, up and down. Numbers that are none of an
/// axis's values lie between two of them. Gates are beside those with one gate more or fewer.
std::vector<Neighbour> neighbours_of(const Point& point);

/// A few usual problems, to walk along each axis from.
std::vector<Point> anchors();

}  // namespace attune::cli
