// What work and memory traffic take that go on at once.
#pragma once

#include <cmath>

namespace attune::cuda {

/// Work and traffic hide each other where neither is much more than the other: a root of squares. Not
/// std::hypot, whose symbol is newer than manylinux_2_34, the Linux that wheels are for.
inline double side_by_side(double work, double traffic) {
  return std::sqrt(work * work + traffic * traffic);
}

}  // namespace attune::cuda
