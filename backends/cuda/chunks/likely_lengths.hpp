// What the longest of packed sequences may have: lengths are known to the device alone. What a
// kernel expects is a mean over these.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda {

struct LikelyLengths {
  explicit LikelyLengths(const ops::RecurrentAttentionProblem& problem)
      : all(static_cast<double>(problem.T)),
        others(static_cast<double>(std::max<std::int64_t>(problem.N - 1, 0))),
        mean(all / static_cast<double>(std::max<std::int64_t>(problem.N, 1))) {
    longest.fill(mean);
    if (problem.N <= 1 || problem.pool) return;  // prompts on a pool are taken to be alike
    constexpr double kTimesMean = 3;
    const double half = std::max(mean, all / 2);
    longest = {mean, std::min(kTimesMean * mean, half), half};
  }

  /// Of times f(tokens of the longest) the root of their mean square: one that may be very long counts
  /// for more than it would on average.
  template <class F>
  double average(F&& f) const {
    double squares = 0;
    for (const double tokens : longest) {
      const double us = f(tokens);
      squares += us * us;
    }
    return std::sqrt(squares / static_cast<double>(longest.size()));
  }
  /// Tokens that a token has before it and with it, on average, where the longest has so many and
  /// the others are alike.
  double steps(double tokens) const {
    const double rest = all - tokens;
    const double squares = tokens * tokens + (others > 0 ? rest * rest / others : 0);
    return squares / std::max(2 * all, 1.0) + 0.5;
  }

  double all;     // tokens
  double others;  // sequences but the longest
  double mean;    // tokens of a sequence
  /// As many as the others, some times as many, or half of all.
  std::array<double, 3> longest;
};

/// The batch that packed sequences are if all are as long as they are on average. A config that is
/// chosen for it suits those of one length: forward kernels then cut them as it is.
inline ops::RecurrentAttentionProblem as_batch(ops::RecurrentAttentionProblem problem) {
  if (problem.N <= 1) return problem;
  problem.B = problem.N;
  problem.T = std::max<std::int64_t>(problem.T / problem.N, 1);
  problem.N = 0;
  return problem;
}

}  // namespace attune::cuda
