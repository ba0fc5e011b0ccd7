// Into how many segments a backward pass cuts its sequences: by what that costs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include <attune/core/axis_values.hpp>
#include <attune/core/device.hpp>

#include "cuda/chunks/chunk.hpp"

namespace attune::cuda {

/// Microseconds, fitted to timings on an H200. Only what depends on the number of segments counts.
struct WalkTimes {
  double chunk = 0;  // of a walk
  double sum = 0;    // of a walk that only makes what its segment adds to the state
  double round = 0;  // of as many blocks as a device has multiprocessors, besides their chunks
  double sums = 0;   // of the launch of those, besides
  double pass = 0;   // of one segment by those that start behind it
  double state = 0;  // of what a segment adds, through memory

  /// With less to do for each chunk, and a smaller state.
  constexpr WalkTimes of_small_tiles() const {
    constexpr double kWork = 0.6;
    constexpr double kState = 0.25;
    return {kWork * chunk, kWork * sum, round, sums, pass, kState * state};
  }
};

/// Walks of a problem.
struct SegmentedWalks {
  std::int64_t count = 1;         // of a segment, in one direction
  std::span<const int> launches;  // one after the other, with so many times `count` walks each
  std::int64_t chunks = 1;        // of a sequence
  int most_passed = 1;            // with more segments, starts are made ahead
};

/// Of the longest sequence. Lengths of packed ones are not known on the host.
inline std::int64_t longest_chunks(const ops::RecurrentAttentionProblem& problem) {
  constexpr std::int64_t kLongest = 2;  // against the mean
  if (problem.N <= 1) return chunks_of(problem.T);
  return chunks_of(std::min(problem.T, problem.T / problem.N * kLongest));
}

inline double segments_cost(const SegmentedWalks& walks, const WalkTimes& times, int segments,
                            const DeviceInfo& device) {
  const auto rounds = [&](std::int64_t blocks) {
    return std::ceil(static_cast<double>(blocks) / static_cast<double>(device.cores));
  };
  const double chunks =
      std::ceil(static_cast<double>(walks.chunks) / static_cast<double>(segments));
  double cost = 0;
  for (const int times_count : walks.launches) {
    cost += rounds(times_count * walks.count * segments) * (chunks * times.chunk + times.round);
  }
  if (segments == 1) return cost;
  constexpr std::int64_t kDirections = 2;
  cost += times.sums +
          rounds(kDirections * walks.count * (segments - 1)) * (chunks * times.sum + times.round);
  if (segments <= walks.most_passed) cost += times.pass * (segments - 1);
  return cost + times.state * static_cast<double>(walks.count * segments);
}

/// The config with the number of segments that costs least.
template <class Config>
Config cheapest_segments(const SegmentedWalks& walks, const WalkTimes& times,
                         const DeviceInfo& device) {
  Config best;
  for (Config config; config.segments <= largest_value(&Config::segments); config.segments *= 2) {
    if (config.segments > walks.chunks) break;
    if (segments_cost(walks, times, config.segments, device) <
        segments_cost(walks, times, best.segments, device)) {
      best = config;
    }
  }
  return best;
}

/// Whether a tuner need not try so many segments: some would have no chunk, or blocks would wait
/// for many others.
inline bool too_many_segments(const SegmentedWalks& walks, int segments, const DeviceInfo& device) {
  constexpr std::int64_t kMostRounds = 4;
  return segments > 1 &&
         (segments > walks.chunks || walks.count * segments > kMostRounds * device.cores);
}

}  // namespace attune::cuda
