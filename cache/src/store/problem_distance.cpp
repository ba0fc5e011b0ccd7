#include "store/problem_distance.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <attune/core/error.hpp>
#include <attune/core/params.hpp>

namespace attune {

double problem_distance(std::string_view a, std::string_view b) {
  Params left;
  Params right;
  try {
    left = parse_params(a, ' ');
    right = parse_params(b, ' ');
  } catch (const InvalidArgument&) {  // of a row that another program wrote: last of all, but still
                                      // a row
    return std::numeric_limits<double>::infinity();
  }
  const auto log2_of = [](std::int64_t value) {
    return std::log2(static_cast<double>(std::max<std::int64_t>(value, 1)));
  };
  double distance = 0;
  for (const Param& param : left) {
    const std::string* other = find_param(right, param.name);
    std::int64_t x = 0;
    std::int64_t y = 0;
    if (other != nullptr && parse_integer(param.value, x) && parse_integer(*other, y)) {
      distance += std::abs(log2_of(x) - log2_of(y));
    }
  }
  return distance;
}

}  // namespace attune
