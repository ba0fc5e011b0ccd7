// Into how many segments a backward pass cuts its sequences: by what that costs.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include <attune/core/axis_values.hpp>
#include <attune/core/device.hpp>

#include "cuda/chunks/chunk.hpp"
#include "cuda/chunks/expected_walk.hpp"
#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda {

/// Microseconds, fitted to timings on an H200, and traffic on an H100. Only what depends on the
/// number of segments counts.
struct WalkTimes {
  double chunk = 0;    // of a walk
  double shared = 1;   // of that time, a walk's where two have a multiprocessor
  double sum = 0;      // of a walk that only makes what its segment adds to the state
  double round = 0;    // of as many blocks as a device has multiprocessors, besides their chunks
  double sums = 0;     // of the launch of those, besides
  double pass = 0;     // of one segment by those that start behind it
  double starts = 0;   // of the launch that makes starts ahead, where there are more segments
  double state = 0;    // of what a segment adds, through memory
  double traffic = 0;  // of what a walk moves for a chunk, through memory, where that counts
  double sum_traffic = 0;  // the same of a walk that only makes what its segment adds

  /// With less to do for each chunk, and a smaller state.
  constexpr WalkTimes of_small_tiles() const {
    constexpr double kWork = 0.6;
    constexpr double kState = 0.25;
    constexpr double kTraffic = 0.5;
    return {.chunk = kWork * chunk,
            .shared = shared,
            .sum = kWork * sum,
            .round = round,
            .sums = sums,
            .pass = pass,
            .starts = starts,
            .state = kState * state,
            .traffic = kTraffic * traffic,
            .sum_traffic = kTraffic * sum_traffic};
  }
};

/// Chunks of sequences.
struct SequenceChunks {
  explicit SequenceChunks(const ops::RecurrentAttentionProblem& problem) {
    const LikelyLengths lengths(problem);
    const auto chunks = [](double tokens) {
      return chunks_of(static_cast<std::int64_t>(std::ceil(tokens)));
    };
    mean = chunks(lengths.mean);
    std::ranges::transform(lengths.longest, longest.begin(), chunks);
  }
  std::int64_t most() const { return longest.back(); }

  std::int64_t mean = 1;
  std::array<std::int64_t, 3> longest{1, 1, 1};  // of the longest one, which may be any of these
};

/// Walks of a problem.
struct SegmentedWalks {
  std::int64_t count = 1;         // of a segment, in one direction
  std::span<const int> launches;  // one after the other, with so many times `count` walks each
  SequenceChunks chunks;
  int most_passed = 1;  // with more segments, starts are made ahead
};

/// Of a launch of `blocks` that walk a segment each: as long as all of them take together, or as
/// the one takes that walks most, on average over what the longest sequence may be. Where several
/// have a multiprocessor, each takes `shared` of its time alone.
inline double launch_cost(std::int64_t blocks, const SequenceChunks& chunks, int segments,
                          double of_chunk, double of_round, double shared,
                          const DeviceInfo& device) {
  const auto of_walk = [&](std::int64_t of_sequence) {
    return static_cast<double>(ceil_div(of_sequence, segments)) * of_chunk + of_round;
  };
  const std::int64_t rounds = ceil_div(blocks, device.cores);
  const double together =
      static_cast<double>(rounds) * (rounds > 1 ? shared : 1.0) * of_walk(chunks.mean);
  double cost = 0;
  for (const std::int64_t longest : chunks.longest) cost += std::max(together, of_walk(longest));
  return cost / static_cast<double>(chunks.longest.size());
}

/// Of the walks and of what goes ahead of them, in the unit of `times`.
inline double segments_cost(const SegmentedWalks& walks, const WalkTimes& times, int segments,
                            const DeviceInfo& device) {
  const auto all_chunks = static_cast<double>(walks.count * walks.chunks.mean);
  double cost = 0;
  for (const int times_count : walks.launches) {
    cost += side_by_side(launch_cost(times_count * walks.count * segments, walks.chunks, segments,
                                     times.chunk, times.round, times.shared, device),
                         times.traffic * times_count * all_chunks);
  }
  if (segments == 1) return cost;
  constexpr std::int64_t kDirections = 2;
  const double summed = static_cast<double>(segments - 1) / segments;
  cost += times.sums +
          side_by_side(launch_cost(kDirections * walks.count * (segments - 1), walks.chunks,
                                   segments, times.sum, times.round, 1, device),
                       times.sum_traffic * kDirections * all_chunks * summed);
  cost += segments <= walks.most_passed ? times.pass * (segments - 1) : times.starts;
  return cost + times.state * static_cast<double>(walks.count * segments);
}

/// The config with the number of segments that costs least.
template <class Config>
Config cheapest_segments(const SegmentedWalks& walks, const WalkTimes& times,
                         const DeviceInfo& device) {
  Config best;
  for (Config config; config.segments <= largest_value(&Config::segments); config.segments *= 2) {
    if (config.segments > walks.chunks.most()) break;
    if (segments_cost(walks, times, config.segments, device) <
        segments_cost(walks, times, best.segments, device)) {
      best = config;
    }
  }
  return best;
}

/// Whether a tuner need not try so many segments: some would have no chunk, or blocks would wait
/// for many others, of which packed sequences have many that are soon done.
inline bool too_many_segments(const SegmentedWalks& walks, int segments, const DeviceInfo& device) {
  const std::int64_t most_rounds = walks.chunks.most() > walks.chunks.mean ? 64 : 4;
  return segments > 1 &&
         (segments > walks.chunks.most() || walks.count * segments > most_rounds * device.cores);
}

}  // namespace attune::cuda
