// What both backward kernels with sums over segments of tokens do about their rounding.
//
// Within a segment the gradient of a gate is carried on from token to token, and the rounding of
// each stays in those of all tokens before it. In the gradient of a constant decay, their sum, that
// is an error of as many tokens; and the sum may cancel to a hundredth of its terms. But at the end
// of the segment, where the gradient is summed up anew, all of what was left is known.
#pragma once

#include <cstdint>

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

inline double sum_of(const float* values, std::int64_t count) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]);
  return sum;
}

// The gradient behind a segment of `tokens`, `carried` to there and summed up `anew`: what the
// segment's part of the sum is too large by. The rounding came with one token after the other, so
// half of it is in the gradient of each on average.
inline double excess_of_segment(double carried, double anew, std::int64_t tokens) {
  return (carried - anew) * 0.5 * static_cast<double>(tokens);
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
