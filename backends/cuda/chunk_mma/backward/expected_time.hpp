// How long the backward pass is expected to take, fitted to an H100.
#pragma once

#include <algorithm>

#include <attune/core/device.hpp>

#include "cuda/chunk_mma/backward/workspace.hpp"
#include "cuda/chunks/few_tokens.hpp"

namespace attune::cuda::chunk_mma::backward {

/// Tokens of a sequence, of packed ones on average.
inline std::int64_t mean_tokens(const Problem& problem) {
  return std::max<std::int64_t>(problem.T / std::max<std::int64_t>(problem.N, 1), 1);
}

/// Of the longest sequence. Lengths of packed ones are not known on the host.
inline std::int64_t longest_tokens(const Problem& problem) {
  constexpr std::int64_t kLongest = 2;  // against the mean
  return problem.N > 1 ? std::min(problem.T, kLongest * mean_tokens(problem)) : problem.T;
}

/// Microseconds of the walks of states.
inline double walks_us(const Problem& problem, const DeviceInfo& device, std::int64_t tokens) {
  constexpr double kOfWideChunk = 6.6;  // of a tile of two panels a side
  constexpr double kOfChunk = 3.0;      // of a block alone on a multiprocessor
  constexpr double kOfTwoChunks = 4.4;  // of both of two blocks
  constexpr std::int64_t kBefore = 1;   // chunks' time, until a block's first tokens are there
  constexpr double kOfSegment = 0.12;   // to find what it starts from
  const std::int64_t segments = ceil_div(mean_tokens(problem), tokens);
  const std::int64_t walks = problem.H * problem.sequences() * segments;
  const int panels = walk_panels(problem.K, problem.V, walks);
  const std::int64_t tile = panels * kPanelChannels;
  const std::int64_t blocks = 2 * ceil_div(problem.K, tile) * ceil_div(problem.V, tile) * walks;
  const std::int64_t chunks = ceil_div(std::min(longest_tokens(problem), tokens), kTokens);
  const std::int64_t pairs = blocks / (2 * device.cores);
  const std::int64_t left = blocks - pairs * 2 * device.cores;
  const double of_chunk =
      panels == 2 ? kOfWideChunk * static_cast<double>(ceil_div(blocks, device.cores))
                  : kOfTwoChunks * static_cast<double>(pairs) + (left > device.cores ? kOfTwoChunks
                                                                 : left > 0          ? kOfChunk
                                                                                     : 0.0);
  return static_cast<double>(chunks + kBefore) * of_chunk +
         kOfSegment * static_cast<double>(segments);
}

/// Microseconds of a chunk and head, for every multiprocessor.
inline double chunk_us(const Problem& problem) {
  const bool key_gates = has_key_gates(problem);
  const bool value_gates = has_value_gates(problem);
  // [Panels of keys, and of values].
  constexpr double kOfChunk[kMostPanels][kMostPanels] = {{10.3, 18.0}, {18.0, 29.0}};
  constexpr double kOfGatedChunk[kMostPanels][kMostPanels] = {{14.0, 18.0}, {30.0, 44.0}};
  // With gates of value channels: [panels of keys], and of each of its panels of values.
  constexpr double kOfKeys[kMostPanels] = {6.0, 18.0};
  constexpr double kOfValues[kMostPanels] = {14.0, 24.0};
  if (!goes_by_panels(problem)) {
    const int keys = panels_of(problem.K) - 1;
    const int values = panels_of(problem.V);
    return value_gates ? kOfKeys[keys] + values * kOfValues[keys]
           : key_gates ? kOfGatedChunk[keys][values - 1]
                       : kOfChunk[keys][values - 1];
  }
  constexpr double kOfTile = 4.0;   // of a state
  constexpr double kOfOut = 1.4;    // more, where what is read of S by values is made, too
  constexpr double kOfPanel = 3.0;  // of what else there is, scores among it
  constexpr double kOfGates = 2.4;  // more, of a panel with gates
  const int keys = panels_of(problem.K);
  const int values = panels_of(problem.V);
  const double of_tile = kOfTile + (value_gates ? kOfOut : 0.0);
  return (has_states(problem) ? of_tile * keys * values : 0.0) + kOfPanel * (keys + values) +
         (key_gates || value_gates ? kOfGates * keys : 0.0) +
         (value_gates ? kOfGates * values : 0.0);
}

/// Microseconds of what makes the gradients of chunks.
inline double gradients_us(const Problem& problem, const DeviceInfo& device, bool is_cut) {
  constexpr double kOfStarts = 1.25;  // loaded besides the states
  const std::int64_t chunks =
      problem.sequences() * ceil_div(mean_tokens(problem), kTokens) * problem.H;
  const double us = static_cast<double>(ceil_div(chunks, device.cores)) * chunk_us(problem);
  return is_cut ? kOfStarts * us : us;
}

/// Microseconds of one slice's problem.
inline double slice_us(const Problem& problem, const DeviceInfo& device,
                       const BackwardConfig& config) {
  constexpr double kOfLaunch = 2;
  constexpr double kBytesPerUs = 2.2e6;
  const std::int64_t tokens = segment_tokens_of(problem, config);
  const bool is_cut = tokens < mean_tokens(problem);
  double us = (is_cut ? 3 : 2) * kOfLaunch + gradients_us(problem, device, is_cut);
  if (!has_states(problem)) return us;
  us += walks_us(problem, device, tokens);
  const auto add_operands = [&](std::int64_t channels) {
    constexpr double kTensors = 5;  // reads, writes and gates, and what is made of them
    const auto elements = static_cast<double>(problem.B * problem.T * problem.H * channels);
    us += kOfLaunch + kTensors * sizeof(float) * elements / kBytesPerUs;
  };
  if (has_key_gates(problem)) add_operands(problem.K);
  if (has_value_gates(problem)) add_operands(problem.V);
  return us;
}

/// Microseconds of a slice's problem whose sequences have a chunk or less, on average: what a launch
/// takes counts, and blocks have few tokens to wait for. Fitted to 122 problems, most of them copies
/// of 16 bits.
inline double short_slice_us(const Problem& problem, const DeviceInfo& device) {
  constexpr double kOfLaunch = 2.4;
  constexpr double kWalks = 0.85, kGradients = 0.69;  // of what long ones are reckoned to take
  constexpr double kPanels = 0.24, kGatedPanels = 0.6, kGatedPanelsAlone = 1.0;
  constexpr double kBytesPerUs = 0.9e6;
  const bool key_gates = has_key_gates(problem);
  const bool value_gates = has_value_gates(problem);
  const bool states = has_states(problem);
  const std::int64_t rows = problem.B * problem.T * problem.H;
  int launches = 2 + (states ? 0 : 2) + (goes_by_panels(problem) ? 3 : 0) +
                 ((problem.gates & ops::kGateGamma) != 0 ? 1 : 0) + (problem.N > 0 ? 1 : 0);
  std::int64_t floats = 0;  // through memory
  if (shares_heads(problem)) {
    launches += 2;
    floats += rows * (problem.K + problem.V);
  }
  const auto add_operands = [&](std::int64_t channels) {
    constexpr std::int64_t kTensors = 5;
    launches += 1;
    floats += kTensors * rows * channels;
  };
  if (states && key_gates) add_operands(problem.K);
  if (states && value_gates) add_operands(problem.V);
  const double gradients = !goes_by_panels(problem)     ? kGradients
                           : !key_gates && !value_gates ? kPanels
                           : states                     ? kGatedPanels
                                                        : kGatedPanelsAlone;
  return kOfLaunch * launches + gradients * gradients_us(problem, device, false) +
         (states ? kWalks * walks_us(problem, device, kTokens) : 0.0) +
         static_cast<double>(std::int64_t{sizeof(float)} * floats) / kBytesPerUs;
}

/// Microseconds of all slices.
inline double expected_time_us(const Problem& problem, const DeviceInfo& device,
                               const BackwardConfig& config) {
  const bool is_short = has_short_sequences(problem) && config.segments == 1;
  double us = 0;
  for_each_slice(problem, [&](const KeySlice& slice) {
    const Problem part = slice.of(problem);
    us += is_short ? short_slice_us(part, device) : slice_us(part, device, config);
  });
  return us;
}

}  // namespace attune::cuda::chunk_mma::backward
