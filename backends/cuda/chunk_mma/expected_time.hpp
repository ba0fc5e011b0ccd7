// About how long a forward pass of cuda.chunk_mma takes, in microseconds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/chunk_mma/blocks.hpp"
#include "cuda/chunks/short_walk.hpp"

namespace attune::cuda::chunk_mma {

/// A launch in f32, besides its chunks.
inline constexpr double kSplitLaunchUs = 3.2;

/// Microseconds of the walks of a problem in f32, with slices of the keys side by side.
inline double split_walk_us(const Problem& problem, const DeviceInfo& device,
                            const Config& config) {
  constexpr double kOfBothWalks = 1.33;  // the first one reads nothing
  constexpr double kShared = 0.27;       // more for each further block of a multiprocessor
  constexpr double kOfValueGates = 1.23;
  const int keys = padded_slice_keys(problem);
  double chunk_us = keys > 64 ? 4.5 : config.warps > 4 ? 3.3 : 2.7;
  if (has_channel_gates(problem)) chunk_us *= 1 + keys / 600.0;
  if (has_value_gates(problem)) chunk_us *= kOfValueGates;
  const std::int64_t room = room_for(problem, device, config);
  const std::int64_t blocks = block_count(problem, config);
  const std::int64_t together = ceil_div(std::min(blocks, room), device.cores);
  chunk_us *= 1 + kShared * static_cast<double>(together - 1);
  const std::int64_t tokens = problem.T / std::max<std::int64_t>(problem.N, 1);
  const std::int64_t chunks = ceil_div(ceil_div(tokens, kSplitChunk), config.segments);
  const double us =
      static_cast<double>(chunks * ceil_div(blocks, room)) * chunk_us + kSplitLaunchUs;
  return config.segments > 1 ? us * kOfBothWalks + kSplitLaunchUs : us;
}

/// Microseconds of a problem in f32, fitted to an H200; what gates of value channels take besides,
/// to an H100.
inline double split_us(const Problem& problem, const DeviceInfo& device, const Config& config) {
  constexpr double kOfOperand = 8e-6;  // a channel of q and k made and read again
  constexpr double kOfSummand = 3e-6;  // an output of a slice, read again
  double us = split_walk_us(first_walk(problem), device, config);
  if (const std::int64_t tail = narrow_tail(problem); tail > 0) {
    us += split_walk_us(with_keys(problem, tail), device, config);
  }
  const auto operands_us = [&](std::int64_t channels) {
    return kSplitLaunchUs +
           kOfOperand * static_cast<double>(problem.B * problem.T * problem.H * channels);
  };
  if (has_key_gates(problem)) us += operands_us(problem.K);
  if (has_value_gates(problem)) us += operands_us(problem.V);
  const std::int64_t slices = slices_of_launch(problem);
  if (slices == 1) return us;
  return us + kSplitLaunchUs + kOfSummand * static_cast<double>(slices * plane_elements(problem));
}

/// Whether sequences have so many tokens or fewer, on average.
inline bool has_at_most(const Problem& problem, std::int64_t tokens) {
  return problem.T <= tokens * std::max<std::int64_t>(problem.N, 1);
}

/// Whether sequences in 16 bits are so short that a block's beginning and end are what takes time:
/// blocks of cuda.chunk_wgmma are too few then, and of wide heads too wide. On a pool of states the
/// average has to be shorter, as one may be long and is not cut; many packed ones of small states may
/// be longer, as cuda.chunk_wgmma looks for the parts of each and sums them up ahead.
inline bool is_short(const Problem& problem, const DeviceInfo& device) {
  constexpr std::int64_t kTokens = 100, kMore = 256, kPooled = 32, kMorePooled = 128;
  constexpr std::int64_t kSmallState = 64 * 128, kWide = 128;  // elements; key channels
  constexpr std::int64_t kFewestCut = 4, kRounds = 3;
  const bool many = problem.N >= kFewestCut && !problem.pool &&
                    problem.K * problem.V <= kSmallState &&
                    problem.N * problem.H >= kRounds * device.cores;
  const bool more = problem.K > kWide || many;
  const std::int64_t most =
      problem.pool ? (more ? kMorePooled : kPooled) : (more ? kMore : kTokens);
  return has_at_most(problem, most);
}

/// Microseconds of such a problem: of its blocks, or of its rows and states through memory, fitted
/// to 122 problems on an H100.
inline double short_us(const Problem& problem, const DeviceInfo& device, const Config& config) {
  constexpr double kOfBlock = 1.8;
  constexpr double kOfChunk = 0.5, kOfChunkOfKey = 0.01;
  constexpr double kShared = 0.2;  // more of that for each further block of a multiprocessor
  constexpr double kBytesPerUs = 1.5e6;
  const std::int64_t blocks = block_count(problem, config);
  const std::int64_t room = room_for(problem, device, config);
  const std::int64_t together = ceil_div(std::min(blocks, room), device.cores);
  const ShortWalk walk{.block = kOfBlock,
                       .chunk = kOfChunk + kOfChunkOfKey * padded_slice_keys(problem),
                       .chunk_tokens = static_cast<double>(config.chunk),
                       .rounds = static_cast<double>(ceil_div(blocks, room)) *
                                 (1 + kShared * static_cast<double>(together - 1)),
                       .key_slices = static_cast<double>(ceil_div(problem.K, most_keys(problem)))};
  const std::int64_t rows = problem.B * problem.T * (problem.H + problem.Hkv);
  const std::int64_t states = problem.sequences() * problem.H * (problem.h0 + problem.ht);
  const auto bytes =
      static_cast<double>(2 * rows * (problem.K + problem.V) + 4 * states * problem.K * problem.V);
  return std::max(short_walk_us(walk, LikelyLengths(problem)), bytes / kBytesPerUs);
}

}  // namespace attune::cuda::chunk_mma
