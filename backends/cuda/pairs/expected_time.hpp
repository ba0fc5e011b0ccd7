// How long pairs of tokens are expected to take.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include <attune/core/device.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/pairs/gradients.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda::pairs {

/// Microseconds, fitted to 63 problems forward and 50 backward on an H100.
struct Costs {
  double launches;
  double find;                   // of packed sequences a token's, for each halving of them
  double step, step_of_channel;  // of a warp's tokens one after the other
  double gated;                  // share of that for a side whose channels have gates
  double many;                   // of what warps that wait for each other have in all
  double channel;
  // Of gradients of channels' gates, for each token of the longest sequence, and of shared gates alone.
  double sum, sum_token, shared_sum;
};
inline constexpr Costs kForwardCosts{1.39, 0.234, 0.251, 0.0147, 0.492, 3.1, 0.00791, 0, 0, 0};
inline constexpr Costs kBackwardCosts{2.17, 0.169,  0.0183, 0.00805, 0.762,
                                      13.6, 0.0131, 2.41,   0.44,    4.51};

/// Where the longest sequence has so many tokens and one has so many to go to, on average.
inline double pairs_us(const ops::RecurrentAttentionProblem& problem, const DeviceInfo& device,
                       bool backward, double longest, double steps) {
  constexpr int kLanes = 32, kWarpsOfCore = 16;
  const Costs& cost = backward ? kBackwardCosts : kForwardCosts;
  const double channels_of_lane = static_cast<double>(std::bit_ceil(static_cast<std::uint64_t>(
      std::max<std::int64_t>(ceil_div(std::max(problem.K, problem.V), kLanes), 2))));
  const int channel_gates =
      ((problem.gates & ops::kGateGk) != 0 ? 1 : 0) + ((problem.gates & ops::kGateGv) != 0 ? 1 : 0);
  const double step =
      cost.step + cost.step_of_channel * channels_of_lane * (1 + cost.gated * channel_gates);
  const double warps = static_cast<double>(problem.B * problem.T * problem.H) /
                       (std::max(device.cores, 1) * kWarpsOfCore);
  const auto group = static_cast<double>(problem.H / problem.Hkv);
  const double passes = backward ? 2 : 1;
  const bool sums_gates = backward && problem.gates != 0 && !has_single_tokens(problem);
  const double sums = !sums_gates         ? 0
                      : channel_gates > 0 ? cost.sum + cost.sum_token * longest
                                          : cost.shared_sum;
  const double find =
      cost.find * std::log2(static_cast<double>(std::max<std::int64_t>(problem.N, 1)));
  return cost.launches + find + cost.channel * channels_of_lane + sums +
         longest * step * (1 + (backward ? group : 0)) + passes * cost.many * warps * steps * step;
}

/// Short sequences (gradients.hpp), each of so many tokens.
inline double short_sequences_us(const ops::RecurrentAttentionProblem& problem,
                                 const DeviceInfo& device, double tokens) {
  return pairs_us(problem, device, true, tokens, (tokens + 1) / 2);
}

}  // namespace attune::cuda::pairs
