// Into how many segments a forward pass cuts its sequences: by what that costs.
#pragma once

#include <algorithm>
#include <cstdint>

#include <attune/core/device.hpp>

#include "cuda/chunks/segment_walk.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda {

/// Of a walk over sequences without segments.
struct WholeWalk {
  std::int64_t blocks = 1;
  std::int64_t room = 1;         // blocks that a device has room for at once
  std::int64_t chunks = 1;       // of a sequence, on average
  std::int64_t state_bytes = 0;  // of a block, where starts may be made ahead
};

/// Of a block's state, or 0. Packed sequences cut by their own lengths pass the sums of their segments,
/// so that several sequences are cut as if all did: a batch has the cuts of packed ones.
inline std::int64_t bytes_for_starts(const ops::RecurrentAttentionProblem& problem,
                                     std::int64_t state_bytes) {
  return problem.sequences() > 1 ? 0 : state_bytes;
}

/// Chunks of so many tokens that a sequence has, packed ones on average: their lengths are not
/// known on the host.
inline std::int64_t mean_chunks(const ops::RecurrentAttentionProblem& problem,
                                std::int64_t tokens) {
  return ceil_div(problem.T / std::max<std::int64_t>(problem.N, 1), tokens);
}

/// Whether what segments start from is made ahead (segment_starts.hpp): where a launch takes less than
/// the last segment's block, which would pass the sums of all others.
constexpr bool makes_starts(int segments, std::int64_t state_bytes) {
  constexpr std::int64_t kKiB = 1024;
  constexpr std::int64_t kLatency = 16 * kKiB;  // of a sum, in bytes that are loaded meanwhile
  constexpr std::int64_t kMostPassed = 1408 * kKiB;
  return segments * (state_bytes + kLatency) > kMostPassed;
}

/// Segments of a sequence, and what they cost, in the time of a chunk.
struct SegmentsCost {
  int segments = 1;
  double chunks = 0;
};

/// Of kSegments, those of short segments: numbers between these gain less for them than the state of
/// a segment more costs.
inline constexpr int kShortSegments[] = {1,  2,  3,  4,  5,  6,  8,  10, 12,
                                         16, 20, 24, 32, 40, 48, 64, 96, 128};

/// What segments cost, in the time of a chunk, fitted to twelve numbers of segments of 128 walks on an
/// H100.
struct SegmentTimes {
  double shared = 1.3;             // where blocks share a multiprocessor
  double both_walks = 1.8;         // where there are two: the first one reads nothing
  double launch = 2;               // of the first one
  double state = 0.3;              // of a segment, which those behind it load
  double starts = 2;               // of the launch that makes what they start from, if there is one
  double start = 0.1;              // of a segment in it
  double block = 0;                // that takes the place of one that is done
  std::int64_t most_blocks = 0;    // of a multiprocessor, where more may pay than it has room for
  std::int64_t long_segment = 16;  // chunks that are none of a short one
};

/// The segments that take least.
inline SegmentsCost cheapest_segments(const WholeWalk& walk, const DeviceInfo& device,
                                      const SegmentTimes& times = {}) {
  const auto rounds = [&](int segments) {
    return static_cast<double>(ceil_div(segments * walk.blocks, walk.room));
  };
  const auto walk_time = [&](int segments) {
    const auto chunks = static_cast<double>(ceil_div(walk.chunks, segments));
    const bool shared = std::min(segments * walk.blocks, walk.room) > device.cores;
    return (rounds(segments) * (chunks + times.block) - times.block) *
           (shared ? times.shared : 1.0);
  };
  const auto is_meant = [&](int segments) {
    return walk.chunks >= times.long_segment * segments ||
           std::ranges::find(kShortSegments, segments) != std::ranges::end(kShortSegments);
  };
  const std::int64_t most = std::max(walk.room, times.most_blocks * device.cores);
  SegmentsCost best{1, walk_time(1)};
  for (const int segments : kSegments) {
    if (segments == 1 || !is_meant(segments)) continue;
    if (segments * walk.blocks > most || segments > walk.chunks) break;
    const bool has_starts = walk.state_bytes > 0 && makes_starts(segments, walk.state_bytes);
    const double states = has_starts ? times.starts + times.start * segments
                                     : times.state * segments * std::max(rounds(segments) / 2, 1.0);
    const double cost = times.both_walks * walk_time(segments) + times.launch + states;
    if (cost < best.chunks) best = {segments, cost};
  }
  return best;
}

}  // namespace attune::cuda
