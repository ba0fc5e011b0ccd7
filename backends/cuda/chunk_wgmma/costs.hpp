// What a config of cuda.chunk_wgmma costs beside others, and about how long it takes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <attune/core/axis_values.hpp>
#include <attune/core/device.hpp>

#include "cuda/chunks/expected_walk.hpp"
#include "cuda/chunks/segment_costs.hpp"
#include "cuda/wgmma_walk/walk.hpp"

namespace attune::cuda::chunk_wgmma {

using Config = ChunkWgmmaConfig;
using Problem = ops::RecurrentAttentionProblem;

inline constexpr int kNarrowest = smallest_value(&Config::tile_v);

/// The narrowest tile for all key channels at once. Where there is none, that of slices: the widest
/// with so many value channels, if two of those do.
inline int tile_k_of(const Problem& problem, int tile_v) {
  constexpr int kWidest = largest_value(&Config::tile_k);
  constexpr int kWidestOfWide = 192;
  if (problem.K <= kWidest) return axis_value_for(&Config::tile_k, problem.K);
  return tile_v > kNarrowest && problem.K <= 2 * kWidestOfWide ? kWidestOfWide : kWidest;
}
/// Slices of the key channels, a launch each.
inline std::int64_t slices_of(const Problem& problem, const Config& config) {
  return ceil_div(problem.K, config.tile_k);
}
/// Items of one slice.
inline std::int64_t items_of(const Problem& problem, const Config& config) {
  const std::int64_t tiles = ceil_div(problem.V, config.tile_v);
  return problem.sequences() * problem.H * tiles * config.segments;
}
/// Items of launches that run beside each other: slices of sequences that are not cut.
inline std::int64_t items_at_once(const Problem& problem, const Config& config) {
  return items_of(problem, config) * (config.segments == 1 ? slices_of(problem, config) : 1);
}

/// How long a chunk takes blocks that come in rounds of one a multiprocessor: what it takes a block
/// alone, `alone`, or what memory takes for the round, of which a block asks for `traffic`.
inline double rounds_of(std::int64_t blocks, const DeviceInfo& device, double alone,
                        double traffic) {
  const std::int64_t rest = blocks % device.cores;
  const double round = std::max(alone, traffic * device.cores);
  const double last = rest == 0 ? 0 : std::max(alone, traffic * static_cast<double>(rest));
  return round * static_cast<double>(blocks / device.cores) + last;
}

/// How long blocks walk so many parts of each sequence: all of them together, or the one that walks
/// most.
inline double walk_of(const SequenceChunks& chunks, int parts, std::int64_t blocks,
                      const DeviceInfo& device, double alone, double traffic) {
  const auto of_part = [&](std::int64_t of_sequence) {
    return static_cast<double>(ceil_div(of_sequence, parts));
  };
  const double together = of_part(chunks.mean) * rounds_of(blocks, device, alone, traffic);
  double sum = 0;
  for (const std::int64_t longest : chunks.longest) {
    sum += std::max(together, of_part(longest) * alone);
  }
  return sum / static_cast<double>(chunks.longest.size());
}

/// Relative cost of a call, in units of the time that a block alone takes for a chunk with 128
/// value channels. A segment before its turn is walked once more for its state, which then goes
/// through memory. The constants are fitted to 6,000 timings on an H200 with D = 128: of 169
/// problems, what costs least here is within 5 % of the fastest config for 161; those of slices, to
/// 42 problems of an H100 with more than 256 key channels, of which it is within 10 % for 39; those of
/// the widest, to 18 of an H200, of which it is within 9 % for all.
inline double cost_of(const Problem& problem, const DeviceInfo& device, const Config& config) {
  constexpr double kHalfTile = 0.75;     // a chunk with 64 value channels
  constexpr double kTraffic = 0.0129;    // 78 blocks take all that memory gives
  constexpr double kBeginAndEnd = 3;     // of an item
  constexpr double kFirstWalk = 0.55;    // against a second one
  constexpr double kFirstTraffic = 0.5;  // no q, no o
  constexpr double kLaunch = 4;          // of the first walk
  constexpr double kStateTraffic = 0.015;
  constexpr double kOfSlice = 2, kHalfOfSlice = 1.6;  // a chunk of a slice: more keys than 128
  constexpr double kWidest = 1.4;                     // a chunk of the widest, of half of it
  constexpr double kSliceTraffic = 2;
  constexpr double kManyKeysTraffic = 0.68;  // in the time that a chunk of them takes
  constexpr double kAddedSlice = 4;
  const std::int64_t slices = slices_of(problem, config);
  const auto alone_of = [&](const Config& tile) {
    const double half = slices > 1 ? kHalfOfSlice : kHalfTile;
    if (tile.is_widest()) return kWidest * half;
    return tile.tile_v < 128 ? half : slices > 1 ? kOfSlice : 1.0;
  };
  const double alone = alone_of(config);
  const auto width_of = [&](const Config& tile) {
    return tile.tile_v / 128.0 * (slices > 1 ? kSliceTraffic : 1) *
           (tile.tile_k > 128 ? kManyKeysTraffic : 1);
  };
  const double width = width_of(config);
  const SequenceChunks chunks(problem);
  const std::int64_t items = items_at_once(problem, config);
  const double walk = walk_of(chunks, config.segments, items, device, alone, kTraffic * width) +
                      kBeginAndEnd * std::ceil(static_cast<double>(items) / device.cores);
  if (config.segments == 1) return walk;
  const int subsegments = subsegments_of_segment(walk_extents(problem), config);
  const Config sums = config.of_sums();
  const std::int64_t firsts =
      items_at_once(problem, sums) / sums.segments * (sums.segments - 1) * subsegments;
  const double first_walk =
      walk_of(chunks, sums.segments * subsegments, firsts, device, kFirstWalk * alone_of(sums),
              kFirstTraffic * kTraffic * width_of(sums));
  const double of_slice = walk + first_walk + kLaunch +
                          kStateTraffic * width * static_cast<double>(items * subsegments);
  return of_slice * static_cast<double>(slices) + kAddedSlice * static_cast<double>(slices - 1);
}

/// Microseconds of a chunk of a block with 64 value channels, by its key channels.
inline double chunk_us(int tile_k) {
  return tile_k == 64 ? 0.49 : tile_k == 128 ? 0.77 : tile_k == 192 ? 1.33 : 1.49;
}

/// Microseconds of a call: of its blocks, and of its rows and states through memory. Fitted to 658 configs
/// of 143 problems of sequences of one length on an H100; chunks of more than 128 keys take less since, and
/// slices, as fitted to 27 problems of an H200, and states of segments more, as timed there for sequences
/// of 512 and 1024 tokens. Among configs cost_of() chooses better.
inline double config_us(const Problem& problem, const DeviceInfo& device, const Config& config) {
  constexpr double kLaunch = 2.33, kOfBlock = 2.68;
  constexpr double kOfState = 1.84,
                   kElements = 128 * 128;        // of a block, to read or to write so many
  constexpr double kWide = 1.22, kWidest = 1.4;  // a chunk with 128 value channels
  constexpr double kBothWalks = 1.25;            // the first one reads less
  constexpr double kOfCut = 1.2, kOfSegment = 0.22, kStateBytesPerUs = 1.8e6;
  constexpr double kAddedSlice = 2.67, kBytesPerUs = 3.49e6;
  constexpr double kAddedBytes = 8.7;  // of an output that it adds, and a value read again
  const auto slices = static_cast<double>(slices_of(problem, config));
  const auto items = static_cast<double>(items_of(problem, config));
  const bool is_cut = config.segments > 1;
  const int states = (problem.reads_states() ? 1 : 0) + (problem.writes_states() ? 1 : 0);
  const double elements = config.tile_k * config.tile_v;
  const double of_block = kOfBlock + kOfState * states * elements / kElements;
  const double of_chunk = chunk_us(config.tile_k) * (config.is_widest()           ? kWidest
                                                     : config.tile_v > kNarrowest ? kWide
                                                                                  : 1.0);
  const double rounds =
      std::max(std::ceil(static_cast<double>(items_at_once(problem, config)) / device.cores), 1.0);
  const SequenceChunks chunks(problem);
  const auto walked = [&](std::int64_t of_sequence) {
    return of_block + of_chunk * static_cast<double>(ceil_div(of_sequence, config.segments));
  };
  double walk = 0;
  for (const std::int64_t longest : chunks.longest) {
    walk += std::max(rounds * walked(chunks.mean), walked(longest));
  }
  walk /= static_cast<double>(chunks.longest.size());
  if (is_cut) {
    walk = slices * (walk * kBothWalks + kOfCut + kOfSegment * config.segments +
                     2 * items * elements * sizeof(float) / kStateBytesPerUs);
  }
  const auto outputs = static_cast<double>(problem.B * problem.T * problem.H * problem.V);
  const double bytes = bytes_in_16_bits(problem, states) + (slices - 1) * kAddedBytes * outputs;
  return kLaunch + side_by_side(walk, bytes / kBytesPerUs) + kAddedSlice * (slices - 1);
}

}  // namespace attune::cuda::chunk_wgmma
