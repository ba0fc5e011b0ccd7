// How far one rounding to a type may lead from the exact value.
#pragma once

#include <algorithm>
#include <cmath>

#include <attune/core/dtype.hpp>

namespace attune::test {

/// Half a unit in the last place of `value` in `dtype`, with a hair for sums taken in another
/// order.
inline double half_ulp(DType dtype, double value) {
  const int digits = dtype == DType::kF32 ? 24 : dtype == DType::kF16 ? 11 : 8;
  const int least_exponent = dtype == DType::kF16 ? -13 : -125;
  const int exponent =
      value == 0.0 ? least_exponent : std::max(std::ilogb(value) + 1, least_exponent);
  return std::ldexp(0.5, exponent - digits) + 1e-12;
}

}  // namespace attune::test
