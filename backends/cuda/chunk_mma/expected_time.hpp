// About how long a forward pass of cuda.chunk_mma takes, in microseconds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cuda/chunk_mma/blocks.hpp"
#include "cuda/chunks/expected_walk.hpp"
#include "cuda/chunks/likely_lengths.hpp"

namespace attune::cuda::chunk_mma {

/// Microseconds of the walks of a problem in f32, with slices of the keys side by side: all blocks
/// together, or the one that walks most, on average over what that may have.
inline double split_walk_us(const Problem& problem, const DeviceInfo& device,
                            const Config& config) {
  constexpr double kOfLaunch = 0.56, kOfBlock = 3.23;
  constexpr double kOfState = 0.476;     // of a block, to read or to write 64 keys of it
  constexpr double kOfBothWalks = 1.46;  // the first one reads nothing
  constexpr double kOfSegments = 3.35;
  constexpr double kOfValueGates = 1.23;
  constexpr double kOfTwoStages[] = {1.2, 1.045};  // of narrow blocks, of wide ones
  // Of up to 64 keys and of 128, with decays that channels share and with gates of channels.
  constexpr double kOfChunk[2][2][2] = {{{1.79, 2.12}, {1.37, 1.8}}, {{2.21, 2.8}, {1.84, 2.87}}};
  // More for each further block of a multiprocessor.
  constexpr double kShared[2][2] = {{0.115, 0.041}, {0.228, 0.3}};
  const int keys = padded_slice_keys(problem);
  const int is_long = keys > kPanelChannels ? 1 : 0;
  const int is_gated = has_channel_gates(problem) ? 1 : 0;
  const int is_wide = config.warps > 4 ? 1 : 0;
  double chunk_us = kOfChunk[is_long][is_gated][is_wide];
  if (config.stages == 2) chunk_us *= kOfTwoStages[is_wide];
  if (has_value_gates(problem)) chunk_us *= kOfValueGates;
  const int states = (problem.reads_states() ? 1 : 0) + (problem.writes_states() ? 1 : 0);
  const auto block_us = [&](double tokens) {
    const double chunks = std::ceil(tokens / kSplitChunk);
    return kOfBlock + kOfState * states * keys / 64 +
           chunk_us * std::ceil(chunks / config.segments);
  };
  const std::int64_t room = room_for(problem, device, config);
  const std::int64_t blocks = block_count(problem, config);
  const std::int64_t together = ceil_div(std::min(blocks, room), device.cores);
  const double rounds = static_cast<double>(ceil_div(blocks, room)) *
                        (1 + kShared[is_long][is_gated] * static_cast<double>(together - 1));
  const SequenceParts parts = parts_of(problem, config);
  const auto part = static_cast<double>(parts.are_whole ? 0 : parts.tokens);
  const LikelyLengths lengths(problem);
  const double us = kOfLaunch + lengths.average([&](double longest) {
    if (part > 0) longest = std::min(longest, part);
    return std::max(rounds * block_us(lengths.mean), block_us(longest));
  });
  return config.segments > 1 || part > 0 ? us * kOfBothWalks + kOfSegments : us;
}

/// Microseconds of a problem in f32, fitted to 1,205 configs of 63 problems on an H200: 0.12 by root mean
/// square of logarithms.
inline double split_us(const Problem& problem, const DeviceInfo& device, const Config& config) {
  constexpr double kOfOperands = 6.2, kOfSums = 2.06;
  constexpr double kOfOperand = 7.25e-6;       // a channel of q and k made and read again
  constexpr std::int64_t kLeastChannels = 50;  // of a row of them, as which fewer take
  constexpr double kOfSummand = 2.44e-6;       // an output of a slice, read again
  constexpr double kOfLaunch = 1.95, kBytesPerUs = 2e6;
  const std::int64_t rows = problem.B * problem.T * problem.H;
  double us = split_walk_us(first_walk(problem), device, config);
  if (const std::int64_t tail = narrow_tail(problem); tail > 0) {
    us += split_walk_us(with_keys(problem, tail), device, config);
  }
  const auto operands_us = [&](std::int64_t channels) {
    return kOfOperands +
           kOfOperand * static_cast<double>(rows * std::max(channels, kLeastChannels));
  };
  if (has_key_gates(problem)) us += operands_us(problem.K);
  if (has_value_gates(problem)) us += operands_us(problem.V);
  const std::int64_t slices = slices_of_launch(problem);
  if (slices > 1)
    us += kOfSums + kOfSummand * static_cast<double>(slices * plane_elements(problem));
  const std::int64_t states = (problem.reads_states() ? 1 : 0) + (problem.writes_states() ? 1 : 0);
  const std::int64_t floats = 2 * rows * (problem.K + problem.V) +
                              states * problem.sequences() * problem.H * problem.K * problem.V;
  return std::max(
      us, kOfLaunch + static_cast<double>(std::int64_t{sizeof(float)} * floats) / kBytesPerUs);
}

/// Whether sequences have so many tokens or fewer, on average.
inline bool has_at_most(const Problem& problem, std::int64_t tokens) {
  return problem.T <= tokens * std::max<std::int64_t>(problem.N, 1);
}

/// Whether sequences in 16 bits are so short that a block's beginning and end are what takes time:
/// blocks of cuda.chunk_wgmma are too few then, and of wide heads too wide. On a pool of states the
/// average has to be shorter, as one may be long and is not cut.
inline bool is_short(const Problem& problem) {
  constexpr std::int64_t kTokens = 64, kPooled = 32, kPooledOfWide = 128;
  constexpr std::int64_t kWide = 128;  // key channels
  if (!problem.pool) return has_at_most(problem, kTokens);
  return has_at_most(problem, problem.K > kWide ? kPooledOfWide : kPooled);
}

/// Microseconds of walks in 16 bits.
struct WalkCosts {
  double block, state;  // of a block; to read or to write 64 by 64 elements of its state
  double chunk[4];      // of 32 tokens, by panels of key channels
  double long_chunk;    // of 64 tokens, in such chunks
  double wide;          // share of that with eight warps
  double shared;        // of a round, for each further block of a multiprocessor
  double both_walks;    // share of both where sequences are cut
  double cut, segment;  // the launch ahead of them, and for each segment
};
/// Fitted to 175 configs of 44 problems of up to 64 tokens on an H100.
inline constexpr WalkCosts kShortWalks{.block = 0.883,
                                       .state = 0.382,
                                       .chunk = {1.45, 1.76, 2.07, 2.38},
                                       .long_chunk = 1,
                                       .wide = 1,
                                       .shared = 0.234,
                                       .both_walks = 1,
                                       .cut = 0,
                                       .segment = 0};
/// To 548 configs of 75 problems of 24 tokens and more, all sequences of one length. 192 key channels take
/// what 256 do; of 1.45 to 1.75 for both walks, 1.55 leaves the most problems near their fastest kernel.
inline constexpr WalkCosts kLongWalks{.block = 2.25,
                                      .state = 0.187,
                                      .chunk = {0.78, 1.2, 2.05, 2.05},
                                      .long_chunk = 2.06,
                                      .wide = 1.31,
                                      .shared = 0.447,
                                      .both_walks = 1.55,
                                      .cut = 0.967,
                                      .segment = 0.229};

/// Of a problem in 16 bits: of its blocks, and of its rows and states through memory.
inline double walks_us(const Problem& problem, const DeviceInfo& device, const Config& config,
                       const WalkCosts& costs) {
  constexpr double kElements = 64 * 64, kBytesPerUs = 2.08e6;
  const int keys = padded_slice_keys(problem);
  const int states = (problem.reads_states() ? 1 : 0) + (problem.writes_states() ? 1 : 0);
  const bool is_cut = config.segments > 1;
  const double both = is_cut ? costs.both_walks : 1;
  const auto slices = static_cast<double>(ceil_div(problem.K, most_keys(problem)));
  const ExpectedWalk walk{
      .block =
          both * (costs.block + costs.state * states * keys * values_per_block(config) / kElements),
      .chunk = both * costs.chunk[keys / kPanelChannels - 1] *
               (config.chunk > 32 ? costs.long_chunk : 1) * (config.warps > 4 ? costs.wide : 1),
      .chunk_tokens = static_cast<double>(config.chunk) * config.segments,
      .rounds = shared_rounds(block_count(problem, config), room_for(problem, device, config),
                              device, costs.shared),
      .key_slices = slices,
      .traffic = bytes_in_16_bits(problem, states) / kBytesPerUs};
  const double us = expected_walk_us(walk, LikelyLengths(problem));
  return is_cut ? us + slices * (costs.cut + costs.segment * config.segments) : us;
}

/// Of longer sequences cuda.chunk_wgmma is the faster one.
inline constexpr std::int64_t kMostExpectedTokens = 4096;
/// Whether that says of a problem in 16 bits what it takes.
inline bool has_expected_time(const Problem& problem) {
  return is_short(problem) || (!problem.pool && has_at_most(problem, kMostExpectedTokens));
}

}  // namespace attune::cuda::chunk_mma
