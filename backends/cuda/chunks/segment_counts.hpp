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
  std::int64_t room = 1;    // blocks that a device has room for at once
  std::int64_t chunks = 1;  // of a sequence, on average
};

/// Chunks of so many tokens that a sequence has, packed ones on average: their lengths are not
/// known on the host.
inline std::int64_t mean_chunks(const ops::RecurrentAttentionProblem& problem,
                                std::int64_t tokens) {
  return ceil_div(problem.T / std::max<std::int64_t>(problem.N, 1), tokens);
}

/// Segments of a sequence, and what they cost, in the time of a chunk.
struct SegmentsCost {
  int segments = 1;
  double chunks = 0;
};

/// The segments that take least. In the time of a chunk, fitted to twelve numbers of segments of
/// 128 walks on an H100: with the number that costs least here they take 1.017 times as long as
/// with the best, and 1.01 where channels have gates.
inline SegmentsCost cheapest_segments(const WholeWalk& walk, const DeviceInfo& device) {
  constexpr double kBothWalks = 1.8;  // the first one reads nothing
  constexpr double kLaunch = 2;
  constexpr double kState = 0.3;   // of a segment, which those behind it load
  constexpr double kShared = 1.3;  // where blocks share a multiprocessor
  const auto time = [&](int segments) {
    const std::int64_t blocks = segments * walk.blocks;
    const std::int64_t rounds = ceil_div(blocks, walk.room);
    return static_cast<double>(rounds * ceil_div(walk.chunks, segments)) *
           (blocks > device.cores ? kShared : 1.0);
  };
  SegmentsCost best{1, time(1)};
  for (const int segments : kSegments) {
    if (segments == 1) continue;
    if (segments * walk.blocks > walk.room) break;
    const double cost = kBothWalks * time(segments) + kLaunch + kState * segments;
    if (cost < best.chunks) best = {segments, cost};
  }
  return best;
}

}  // namespace attune::cuda
