// About how long gradients of short sequences take, in microseconds, fitted to 55 problems on an
// H100; what a panel of a chunk takes, to six of them since.
#pragma once

#include <algorithm>
#include <cstdint>

#include <attune/core/device.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/gla/params.hpp"
#include "cuda/pairs/expected_time.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda::gla {

/// Walks of short sequences' chunks, for each tile of the state.
struct Walks {
  double busy = 0;  // with a state to start from or to end with, or several chunks
  double idle = 0;  // that leave zeros
};
inline Walks walks_of(const ops::RecurrentAttentionProblem& problem, const GlaParams& side) {
  const bool keys = keys_have_gates(problem);
  const bool both = keys && values_have_gates(problem);
  const int of_s = keys && !both ? 1 : 2;
  const auto chunks = static_cast<double>(side.slots * side.heads);
  if (!problem.h0 && !problem.ht) {
    const std::int64_t most = std::min(problem.N, problem.T / (kChunkTokens + 1));
    return {.busy = static_cast<double>((of_s + 2) * most * side.heads)};
  }
  const int of_d = both || problem.ht ? 2 : 1;  // busy
  return {.busy = chunks * (of_d + (problem.h0 ? of_s : 0)),
          .idle = chunks * (2 - of_d + (problem.h0 ? 0 : of_s))};
}

/// Launches, one after the other, and the blocks of chunks.
inline double walked_us(const ops::RecurrentAttentionProblem& problem, const DeviceInfo& device,
                        const GlaBackwardConfig& config) {
  constexpr double kOfLaunch = 2.8;
  constexpr double kBusyWalk = 4.9, kIdleWalk = 2.1;  // of a chunk and tile
  constexpr double kOfSmallTile = 0.5;
  constexpr double kOfPanel = 1.6, kOfWidePanel = 2.3;  // of a chunk
  constexpr double kPanelLatency = 0.9;                 // of a block that takes them all
  constexpr double kOfLongChunk = 1.3, kBytesPerUs = 1.6e6;
  const GlaParams side = side_of(problem, config, !keys_have_gates(problem));
  const bool both = keys_have_gates(problem) && values_have_gates(problem);
  const int sides = both ? 2 : 1;
  const int launches = (both ? 11 : 5) + ((problem.gates & ops::kGateGamma) != 0 ? 1 : 0) +
                       (problem.H != problem.Hkv ? 1 : 0) + (problem.N > 0 ? 1 : 0);
  const double work = side.tile_channels == kSmallTile ? kOfSmallTile : 1.0;
  const double chunks = static_cast<double>(side.slots * side.heads) / device.cores;
  const Walks walks = walks_of(problem, side);
  const double of_walks = work * side.own_tiles * side.other_tiles *
                          (kBusyWalk * walks.busy + kIdleWalk * walks.idle) / device.cores;
  const int panels = sides * (side.own_panels() + side.other_panels());
  const int state_passes = (problem.h0 ? 3 : 0) + (problem.ht ? 2 : 0);
  const auto state_bytes = static_cast<double>(std::int64_t{sizeof(float)} * problem.sequences() *
                                               problem.H * problem.K * problem.V * state_passes);
  constexpr int kAfterEachOther = 2;
  const double longest = LikelyLengths(problem).average([&](double tokens) {
    const std::int64_t of_sequence = chunks_of(static_cast<std::int64_t>(tokens));
    const std::int64_t segments =
        side.by_parts() ? segments_of_length(static_cast<std::int64_t>(tokens), side.parts.tokens)
                        : config.segments;
    return std::max(of_walks, kAfterEachOther * sides * kOfLongChunk * work *
                                  static_cast<double>(ceil_div(of_sequence, segments)));
  });
  const double of_panel = std::max(problem.K, problem.V) > kLargeTile ? kOfWidePanel : kOfPanel;
  return kOfLaunch * launches + longest + panels * (of_panel * chunks + kPanelLatency) +
         state_bytes / kBytesPerUs;
}

/// A call, of which pairs of tokens may take short ones.
inline double short_us(const ops::RecurrentAttentionProblem& problem, const DeviceInfo& device,
                       const GlaBackwardConfig& config) {
  constexpr double kOfLaunches = 10, kOfLook = 1.2;  // of a chunk's panel, without a sequence
  const std::int64_t left_out = most_left_out(problem);
  if (left_out == 0) return walked_us(problem, device, config);
  const GlaParams side = side_of(problem, config, false);
  const std::int64_t panels =
      problem.T / (left_out + 1) * problem.H * (side.own_panels() + side.other_panels());
  const double looks =
      kOfLaunches + kOfLook * static_cast<double>(panels) / std::max(device.cores, 1);
  return pairs::beside_walk_us(problem, device, true, left_out, looks,
                               [&](const ops::RecurrentAttentionProblem& walked, double) {
                                 return walked_us(walked, device, config);
                               });
}

}  // namespace attune::cuda::gla
