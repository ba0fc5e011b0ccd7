// How long a walk is expected to take: what kernels reckon alike, each with constants of its own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <attune/core/device.hpp>

#include "cuda/chunks/likely_lengths.hpp"

namespace attune::cuda {

/// Work and traffic hide each other where neither is much more than the other: a root of squares. Not
/// std::hypot, whose symbol is newer than manylinux_2_34, the Linux that wheels are for.
inline double side_by_side(double work, double traffic) {
  return std::sqrt(work * work + traffic * traffic);
}

/// A forward walk, or the one behind that of segments' states. Microseconds, as fitted by each kernel.
struct ExpectedWalk {
  double block = 0;         // of each, besides its chunks
  double chunk = 0;         // of one
  double chunk_tokens = 1;  // that all segments have in one
  double rounds = 1;        // of blocks that a device has room for at once
  double key_slices = 1;    // launches one after the other, whose outputs are added
  double traffic = 0;       // of all of it through memory
};

/// Bytes of a problem in 16 bits: rows of heads, and of k and v, and states.
inline double bytes_in_16_bits(const ops::RecurrentAttentionProblem& problem, int states) {
  const std::int64_t rows = problem.B * problem.T * (problem.H + problem.Hkv);
  return static_cast<double>(2 * rows * (problem.K + problem.V) +
                             4 * states * problem.sequences() * problem.H * problem.K * problem.V);
}

/// Rounds of blocks that a device has room for at once, where each further block of a multiprocessor takes
/// so much of a round more.
inline double shared_rounds(std::int64_t blocks, std::int64_t room, const DeviceInfo& device,
                            double further) {
  const double per_core = static_cast<double>(blocks) / std::max(device.cores, 1);
  const double resident = std::max(static_cast<double>(room) / std::max(device.cores, 1), 1.0);
  const double together = std::clamp(std::ceil(per_core), 1.0, resident);
  return std::max(per_core / resident, 1.0) * (1 + further * (together - 1));
}

/// All blocks together, or the one of the longest sequence, on average over how long that may be.
inline double expected_walk_us(const ExpectedWalk& walk, const LikelyLengths& lengths) {
  constexpr double kLaunch = 2.2, kAddedSlice = 4.12;
  const auto block_us = [&](double tokens) {
    return walk.block + walk.chunk * std::ceil(tokens / walk.chunk_tokens);
  };
  const double of_slice = lengths.average([&](double longest) {
    return std::max(walk.rounds * block_us(lengths.mean), block_us(longest));
  });
  return kLaunch + side_by_side(walk.key_slices * of_slice, walk.traffic) +
         kAddedSlice * (walk.key_slices - 1);
}

}  // namespace attune::cuda
