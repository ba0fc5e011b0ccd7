// Random points, the same for the same seed on every machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "drawn/point.hpp"

namespace attune::cli {

class PointDraw {
 public:
  /// Whether a problem is legal and small enough; false has the point drawn smaller.
  using Affordable = std::function<bool(const NamedProblem&)>;

  /// `within` fixes fields: a point has one of the values that it lists. "D" is K and V. Throws
  /// UsageError for an op that is not recurrent_attention or its backward pass.
  PointDraw(std::uint64_t seed, Spec within, Affordable affordable);

  /// Point number `index`; nothing when no point that `within` allows is affordable.
  ///
  /// A third are backward passes; K and V are in 16..512, one in eight of them no multiple of
  /// anything; B T goes from 1 to 2^20 and H from 1 to 128, both log-uniformly; a quarter are
  /// packed. Points that cost too much have fewer heads, then fewer tokens.
  std::optional<Point> point(std::uint64_t index) const;

  bool is_fixed(std::string_view field) const;
  /// The point with the first value of each fixed field.
  Point with_fixed(Point point) const;

 private:
  Point attempt(std::uint64_t stream) const;
  std::optional<Point> made_affordable(Point point) const;

  std::uint64_t seed_;
  Spec within_;
  Affordable affordable_;
};

}  // namespace attune::cli
