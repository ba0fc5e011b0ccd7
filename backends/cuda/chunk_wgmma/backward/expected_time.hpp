// Which config, and which packed sequences are left to pairs of tokens, by what a call is expected to
// take; in microseconds of an H100.
#pragma once

#include <algorithm>
#include <cstdint>

#include <attune/core/device.hpp>

#include "cuda/chunk_wgmma/backward/params.hpp"
#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/chunks/segment_costs.hpp"
#include "cuda/pairs/expected_time.hpp"
#include "cuda/pairs/short_sequences.hpp"

namespace attune::cuda::chunk_wgmma::backward {

/// Of one segment.
inline std::int64_t walks_of(const ops::RecurrentAttentionProblem& problem) {
  return problem.sequences() * problem.H * tiles_of(problem.K) * tiles_of(problem.V);
}

/// dq, then dk and dv: one time stands for both.
inline SegmentedWalks segmented_walks(const ops::RecurrentAttentionProblem& problem) {
  static constexpr int kLaunches[] = {1};
  return {.count = walks_of(problem),
          .launches = kLaunches,
          .chunks = SequenceChunks(problem),
          .most_passed = kMostPassedSegments};
}

/// Tokens up to which packed sequences are left to pairs of tokens, 0 where none are. Heads of one tile
/// have cheap walks, so that pairs pay for fewer tokens.
inline std::int64_t most_left_out(const ops::RecurrentAttentionProblem& problem,
                                  const BackwardConfig& config) {
  constexpr std::int64_t kManyWalks = 4 * 132;  // of rounds and an H100's multiprocessors
  constexpr std::int64_t kOnAverage = 12, kOnAverageOfTiles = 32;
  if (config.segments > 1) return 0;
  const std::int64_t tiles = std::int64_t{tiles_of(problem.K)} * tiles_of(problem.V);
  const bool small = tile_channels(problem) == kSmallTile;
  const std::int64_t walks = chunk_slots(problem) * problem.H * tiles / (small ? 2 : 1);
  return pairs::most_left_out(problem, tiles > 1 ? kOnAverageOfTiles : kOnAverage,
                              walks >= kManyWalks);
}

/// Fitted to every number of segments of 57 batches on an H200: what costs least here takes 1.003 of
/// the fastest in geometric mean, at worst 1.10. Of small tiles, two on a multiprocessor, to eight
/// numbers each of 47 problems, packed ones of equal lengths: 1.011, at worst 1.22.
inline BackwardConfig cheapest_config(const ops::RecurrentAttentionProblem& problem,
                                      const DeviceInfo& device) {
  constexpr WalkTimes kTimes{.chunk = 3.7,
                             .sum = 0.122,
                             .round = 0.809,
                             .sums = 1.63,
                             .pass = 0.54,
                             .starts = 2.89,
                             .state = 0.0322,
                             .traffic = 0.0236,
                             .sum_traffic = 0.00637};
  constexpr WalkTimes kSmallTimes{.chunk = 3.79,
                                  .shared = 0.721,
                                  .sum = 0.05,
                                  .round = 1.58,
                                  .sums = 4.14,
                                  .pass = 0.1,
                                  .starts = 6.0,
                                  .state = 0.0065,
                                  .traffic = 0.0146,
                                  .sum_traffic = 0.0055};
  // Of tiles of which one side is small.
  constexpr double kOfFlat = 0.86, kStateOfFlat = 0.5;
  WalkTimes times = tile_channels(problem) == kSmallTile ? kSmallTimes : kTimes;
  if (const BackwardShape tile = shape_of(problem, true); tile.keys != tile.values) {
    times.chunk *= kOfFlat;
    times.state *= kStateOfFlat;
  }
  const bool by_parts = parts_of(problem, BackwardConfig{}).tokens > 0;
  const SegmentedWalks walks = segmented_walks(by_parts ? as_batch(problem) : problem);
  return cheapest_segments<BackwardConfig>(walks, times, device);
}

/// A call on short sequences, fitted to 26 problems: walks of a chunk or two wait for their first
/// tokens, and for the longest one.
inline double short_call_us(const ops::RecurrentAttentionProblem& problem,
                            const DeviceInfo& device) {
  constexpr double kBegin = 0.713, kOfLaunch = 1.74;
  constexpr double kOfWalk = 12.2, kOfLongChunk = 8.83;  // of both walks
  constexpr double kOfSmallTile = 0.544;                 // alone on a multiprocessor
  constexpr double kOfSharedTile = 0.38;  // of two, as B128 T64 and B32 T256 H16 take
  constexpr double kOfLook = 3;           // both walks, of a block that finds no sequence
  constexpr double kBytesPerUs = 2.32e6;
  const bool small = tile_channels(problem) == kSmallTile;
  const double work = small ? kOfSmallTile : 1.0;
  const double shared_work = small ? kOfSharedTile : 1.0;
  const std::int64_t tiles = std::int64_t{tiles_of(problem.K)} * tiles_of(problem.V);
  const bool has_sums = tiles > 1 || problem.H != problem.Hkv;
  const int launches = 2 + (has_sums ? 1 : 0) +
                       (tiles > 1 && (problem.gates & ops::kGateG) != 0 ? 1 : 0) +
                       ((problem.gates & ops::kGateGamma) != 0 ? 1 : 0) + (problem.N > 0 ? 1 : 0);
  const std::int64_t states = (problem.h0 ? 2 : 0) + (problem.ht ? 1 : 0);
  const auto state_bytes = static_cast<double>(std::int64_t{sizeof(float)} * problem.sequences() *
                                               problem.H * problem.K * problem.V * states);
  const double blocks_of_chunk = static_cast<double>(problem.H * tiles) / device.cores;
  const BackwardConfig config = cheapest_config(problem, device);
  const auto walks_us = [&](const ops::RecurrentAttentionProblem& walked, double longest) {
    const std::int64_t chunks = chunks_of(static_cast<std::int64_t>(longest));
    return std::max(
        kOfWalk * shared_work * static_cast<double>(chunk_slots(walked)) * blocks_of_chunk,
        kOfLongChunk * work * static_cast<double>(ceil_div(chunks, config.segments)));
  };
  const std::int64_t left_out = most_left_out(problem, config);
  const double us = kBegin + kOfLaunch * launches + state_bytes / kBytesPerUs;
  if (left_out == 0) {
    return us + LikelyLengths(problem).average(
                    [&](double longest) { return walks_us(problem, longest); });
  }
  const double looks = kOfLook * blocks_of_chunk * static_cast<double>(problem.T / (left_out + 1));
  return us + kOfLaunch + pairs::beside_walk_us(problem, device, true, left_out, looks, walks_us);
}

}  // namespace attune::cuda::chunk_wgmma::backward
