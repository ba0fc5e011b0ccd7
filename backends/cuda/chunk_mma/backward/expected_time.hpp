// How long the backward pass is expected to take, fitted to 512 problems on an H100.
#pragma once

#include <algorithm>
#include <cmath>

#include <attune/core/device.hpp>

#include "cuda/chunk_mma/backward/workspace.hpp"
#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/pairs/expected_time.hpp"

namespace attune::cuda::chunk_mma::backward {

/// Microseconds of the walks of states: of all blocks together, or of the one that walks most, on
/// average over what that may have.
inline double walks_us(const Problem& problem, const DeviceInfo& device, std::int64_t tokens) {
  constexpr double kOfWideChunk = 5.8;  // of a tile of two panels a side
  constexpr double kOfChunk = 2.8;      // of a block alone on a multiprocessor
  constexpr double kOfTwoChunks = 4.2;  // of both of two blocks
  constexpr double kBefore = 0.56;      // chunks' time, until a block's first tokens are there
  constexpr double kOfSegment = 0.12;   // to find what it starts from
  const std::int64_t segments = ceil_div(mean_tokens(problem), tokens);
  const std::int64_t walks = problem.H * problem.sequences() * segments;
  const int panels = walk_panels(problem.K, problem.V, walks);
  const std::int64_t tile = panels * kPanelChannels;
  const std::int64_t blocks = 2 * ceil_div(problem.K, tile) * ceil_div(problem.V, tile) * walks;
  const std::int64_t pairs = blocks / (2 * device.cores);
  const std::int64_t left = blocks - pairs * 2 * device.cores;
  const double of_chunk =
      panels == 2 ? kOfWideChunk * static_cast<double>(ceil_div(blocks, device.cores))
                  : kOfTwoChunks * static_cast<double>(pairs) + (left > device.cores ? kOfTwoChunks
                                                                 : left > 0          ? kOfChunk
                                                                                     : 0.0);
  const auto steps = [&](double of_sequence) {
    return std::ceil(std::min(of_sequence, static_cast<double>(tokens)) / kTokens) + kBefore;
  };
  const LikelyLengths lengths(problem);
  return kOfSegment * static_cast<double>(segments) + lengths.average([&](double longest) {
    return std::max(steps(lengths.mean) * of_chunk,
                    steps(longest) * (panels == 2 ? kOfWideChunk : kOfChunk));
  });
}

/// Of all chunks, as many as have a slot.
inline std::int64_t chunk_count(const Problem& problem) {
  const std::int64_t slots =
      problem.N > 0 ? problem.T / kTokens + problem.N : problem.B * ceil_div(problem.T, kTokens);
  return slots * problem.H;
}

/// Microseconds of what makes the gradients of chunks, a block each.
inline double chunk_gradients_us(const Problem& problem, const DeviceInfo& device) {
  // [Panels of keys, and of values].
  constexpr double kOfChunk[kMostPanels][kMostPanels] = {{7.1, 12.6}, {12.6, 24.0}};
  constexpr double kOfGatedChunk[kMostPanels][kMostPanels] = {{11.4, 16.6}, {19.4, 28.0}};
  // With gates of value channels: [panels of keys], and of each of its panels of values.
  constexpr double kOfKeys[kMostPanels] = {5.6, 14.0};
  constexpr double kOfValues[kMostPanels] = {11.3, 15.0};
  constexpr double kWithoutTokens = 0.73;  // of that; the rest by the tokens, 16 at least
  constexpr double kWithoutStates = 0.67;
  const int keys = panels_of(problem.K) - 1;
  const int values = panels_of(problem.V);
  const double us = has_value_gates(problem) ? kOfKeys[keys] + values * kOfValues[keys]
                    : has_key_gates(problem) ? kOfGatedChunk[keys][values - 1]
                                             : kOfChunk[keys][values - 1];
  const auto tokens =
      static_cast<double>(std::clamp<std::int64_t>(mean_tokens(problem), 16, kTokens));
  const double of_tokens = kWithoutTokens + (1 - kWithoutTokens) * tokens / kTokens;
  return us * of_tokens * (has_states(problem) ? 1.0 : kWithoutStates) *
         static_cast<double>(ceil_div(chunk_count(problem), device.cores));
}

/// The same, a block a panel of a chunk, behind one that makes the scores of each.
inline double panel_gradients_us(const Problem& problem, const DeviceInfo& device) {
  constexpr double kScores = 3.5, kScoresOfGatedPanel = 2.3;
  constexpr double kOfPanel = 6.1, kOfGates = 4.9;  // of its channels
  constexpr double kOfTile = 2.4;                   // of a state
  constexpr double kOfOut = 4.1;  // more, where what is read of S by values is made, too
  constexpr double kAlone = 0.7;  // where blocks have a multiprocessor each
  constexpr std::int64_t kResident = 2;
  const bool key_gates = has_key_gates(problem);
  const bool value_gates = has_value_gates(problem);
  const int keys = panels_of(problem.K);
  const int values = panels_of(problem.V);
  const std::int64_t chunks = chunk_count(problem);
  const double of_tile = has_states(problem) ? kOfTile + (value_gates ? kOfOut : 0.0) : 0.0;
  const double all = kOfPanel * (keys + values) + kOfGates * (key_gates ? keys : 0) +
                     kOfGates * (value_gates ? values : 0) + 2 * of_tile * keys * values;
  const std::int64_t blocks = chunks * (keys + values);
  const double rounds = blocks <= device.cores
                            ? kAlone
                            : static_cast<double>(ceil_div(blocks, kResident * device.cores));
  const int sharing = score_blocks(problem);
  const double of_scores = kScores + (sharing > 1 ? kSharedScores : 0.0) +
                           (key_gates || value_gates ? kScoresOfGatedPanel : kScoresOfPanel) *
                               static_cast<double>(ceil_div(keys + values, sharing));
  return of_scores * static_cast<double>(ceil_div(chunks, kResident * device.cores)) +
         rounds * all / (keys + values);
}

/// Microseconds of one slice's problem.
inline double slice_us(const Problem& problem, const DeviceInfo& device,
                       const BackwardConfig& config) {
  constexpr double kOfLaunch = 3;
  constexpr double kOfStarts = 1.25;  // of the gradients where they are loaded besides the states
  constexpr double kOperandBytesPerUs = 4e6;  // fitted later, on an H200
  constexpr double kHeadBytesPerUs = 2.5e6;
  const bool key_gates = has_key_gates(problem);
  const bool value_gates = has_value_gates(problem);
  const bool by_panels = goes_by_panels(problem);
  const std::int64_t tokens = segment_tokens_of(problem, config);
  const bool is_cut = has_states(problem) && tokens < mean_tokens(problem);
  const std::int64_t rows = problem.B * problem.T * problem.H;
  const bool sums_gates = (problem.gates & (ops::kGateG | ops::kGateGamma)) != 0;
  int launches = (by_panels ? 2 + (key_gates || value_gates ? 1 : 0) + (sums_gates ? 1 : 0) : 1) +
                 ((problem.gates & ops::kGateGamma) != 0 ? 1 : 0) + (is_cut ? 1 : 0);
  double us = by_panels ? panel_gradients_us(problem, device) : chunk_gradients_us(problem, device);
  if (is_cut) us *= kOfStarts;
  const auto add_bytes = [&](std::int64_t floats, double bytes_per_us) {
    us += static_cast<double>(std::int64_t{sizeof(float)} * floats) / bytes_per_us;
  };
  const auto add_operands = [&](std::int64_t channels) {
    constexpr std::int64_t kTensors = 5;  // reads, writes and gates, and what is made of them
    ++launches;
    add_bytes(kTensors * rows * channels, kOperandBytesPerUs);
  };
  if (has_states(problem)) {
    ++launches;
    us += walks_us(problem, device, tokens);
    if (key_gates) add_operands(problem.K);
    if (value_gates) add_operands(problem.V);
  }
  if (shares_heads(problem)) {
    launches += 2;
    add_bytes(rows * (problem.K + problem.V), kHeadBytesPerUs);
  }
  return us + kOfLaunch * launches;
}

/// Microseconds of all slices, and of pairs of tokens, which may take short sequences.
inline double expected_time_us(const Problem& problem, const DeviceInfo& device,
                               const BackwardConfig& config) {
  constexpr double kOfLaunches = 10, kOfLook = 1.6;  // of a chunk's panel, without a sequence
  const auto walked_us = [&](const Problem& walked, double = 0) {
    double us = 0;
    for_each_slice(
        walked, [&](const KeySlice& slice) { us += slice_us(slice.of(walked), device, config); });
    return us;
  };
  const std::int64_t left_out = most_left_out(problem);
  if (left_out == 0) return walked_us(problem);
  const std::int64_t panels =
      problem.T / (left_out + 1) * problem.H * (panels_of(problem.K) + panels_of(problem.V));
  const double looks =
      kOfLaunches + kOfLook * static_cast<double>(panels) / std::max(device.cores, 1);
  return pairs::beside_walk_us(problem, device, true, left_out, looks, walked_us);
}

}  // namespace attune::cuda::chunk_mma::backward
