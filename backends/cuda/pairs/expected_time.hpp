// How long pairs of tokens are expected to take.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include <attune/core/device.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/pairs/gradients.hpp"
#include "cuda/pairs/short_sequences.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda::pairs {

/// Microseconds, fitted to 148 problems forward and 69 backward on an H100; `find` to packed ones.
struct Costs {
  double launches;
  double find;                   // of packed sequences a token's, for each halving of them
  double step, step_of_channel;  // of a warp's tokens one after the other
  double gated;                  // share of that for a side whose channels have gates
  double many;                   // of what warps that wait for each other have in all
  double warp, warp_channel;     // of as many warps as a device has room for, besides their steps
  // Of gradients of channels' gates, for each token of the longest sequence, and of shared gates alone.
  double sum, sum_token, shared_sum;
};
inline constexpr Costs kForwardCosts{1.41,  0.234, 0.198, 0.0193, 0.567, 1.56,
                                     0.376, 0.128, 0,     0,      0};
inline constexpr Costs kBackwardCosts{2.03,  0.169, 0.0707, 0.0124, 0.611, 7.02,
                                      0.256, 0.239, 1.94,   0.493,  5.03};

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
  const double of_warps =
      cost.warp + cost.warp_channel * channels_of_lane + passes * cost.many * steps * step;
  return cost.launches + find + sums + longest * step * (1 + (backward ? group : 0)) +
         warps * of_warps;
}

/// A pass that leaves sequences of up to `left_out` tokens to pairs (short_sequences.hpp), on average over
/// what lengths may be. walk(walked, longest): what the walk of all sequences takes, or of the longest
/// one if the others are short. `looks`: what blocks that find no sequence take besides.
template <class Walk>
double beside_walk_us(const ops::RecurrentAttentionProblem& problem, const DeviceInfo& device,
                      bool backward, std::int64_t left_out, double looks, Walk&& walk) {
  const LikelyLengths lengths(problem);
  const auto most = static_cast<double>(left_out);
  return lengths.average([&](double longest) {
    const double other = (lengths.all - longest) / std::max(lengths.others, 1.0);
    if (other > most) return walk(problem, longest);
    const double us = looks + pairs_us(problem, device, backward, other, (other + 1) / 2);
    if (longest <= most) return us;
    ops::RecurrentAttentionProblem walked = problem;
    walked.N = 1;
    walked.T = static_cast<std::int64_t>(longest);
    return us + walk(walked, longest);
  });
}

/// The same of a forward pass.
template <class Walk>
double beside_forward_walk_us(const ops::RecurrentAttentionProblem& problem,
                              const DeviceInfo& device, Walk&& walk) {
  constexpr double kOfLaunches = 4, kOfOperands = 6, kOfSlice = 9;
  constexpr double kOfLook = 0.45, kOfLookOfSlices = 1.35;  // of a block without a sequence
  constexpr std::int64_t kOfOneSlice = 256;                 // keys
  const bool is_sliced = problem.K > kOfOneSlice;
  const bool has_operands =
      problem.dtype == DType::kF32 && (problem.gates & (ops::kGateGk | ops::kGateGv)) != 0;
  const auto blocks =
      static_cast<double>(problem.T / (kShortSequence + 1) * forward_blocks(problem));
  const double looks = kOfLaunches + (has_operands ? kOfOperands : 0) + (is_sliced ? kOfSlice : 0) +
                       (is_sliced ? kOfLookOfSlices : kOfLook) * blocks / std::max(device.cores, 1);
  return beside_walk_us(problem, device, false, kShortSequence, looks, walk);
}

}  // namespace attune::cuda::pairs
