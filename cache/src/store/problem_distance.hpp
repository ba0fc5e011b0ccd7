// How far apart two problems of one bucket are.
#pragma once

#include <string_view>

namespace attune {

/// The sum of |log2(a / b)| over the fields that are numbers in both texts ("B=1 T=512 dtype=f32").
/// Infinite when a text cannot be read.
double problem_distance(std::string_view a, std::string_view b);

}  // namespace attune
