// How long cuda.parallel_wgmma is expected to take.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <attune/core/device.hpp>

#include "cuda/chunk_wgmma/parallel/parallel.hpp"
#include "cuda/chunks/chunk.hpp"
#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda::chunk_wgmma {

/// Slots of a block's chunks of outputs, of one head: as chunk_slots() of chunks.
inline std::int64_t parallel_slots(const ops::RecurrentAttentionProblem& problem,
                                   const ParallelWgmmaConfig& config) {
  const std::int64_t tokens = config.chunks * kChunkTokens;
  if (problem.N > 0) return problem.T / tokens + problem.N;
  return problem.B * ceil_div(problem.T, tokens);
}

/// Blocks that make outputs.
inline std::int64_t parallel_blocks(const ops::RecurrentAttentionProblem& problem,
                                    const ParallelWgmmaConfig& config) {
  return parallel_slots(problem, config) * problem.H * ceil_div(problem.V, config.tile_v);
}

/// Value channels of a block that sums up final states.
inline constexpr int kSumValues = 64;

/// Chunks that all blocks of a sequence of so many tokens take, for one head and value tile.
inline double chunks_taken(double tokens, const ParallelWgmmaConfig& config) {
  const double chunks = std::max(std::ceil(tokens / kChunkTokens), 1.0);
  const double groups = std::ceil(chunks / config.chunks);
  return config.chunks * groups * (groups + 1) / 2 - (groups * config.chunks - chunks);
}

/// What final states add, in microseconds: launches behind the outputs, and states through memory.
inline double final_states_us(const ops::RecurrentAttentionProblem& problem) {
  constexpr double kJoin = 3.5, kBytesPerUs = 2.5e6;
  constexpr double kPasses = 3;  // of a sum that is left, read, and stored as a state
  if (!problem.ht) return 0;
  const std::int64_t elements = problem.sequences() * problem.H * problem.K * problem.V;
  return kJoin + kPasses * sizeof(float) * static_cast<double>(elements) / kBytesPerUs;
}

/// What memory takes before the first product and behind the last one, in microseconds.
inline double rows_us(const ops::RecurrentAttentionProblem& problem) {
  constexpr double kBytesPerUs = 5.2e6, kBytes = 2;
  const std::int64_t elements = 2 * problem.B * problem.T * problem.H * (problem.K + problem.V);
  return kBytes * static_cast<double>(elements) / kBytesPerUs;
}

/// Microseconds: of the block that takes most chunks, or of all that a multiprocessor takes. Fitted to
/// 195 configs of 75 batches without initial states on an H200 (0.072 by root mean square of
/// logarithms); what these and unlike lengths add is a rougher guess.
inline double parallel_us(const ops::RecurrentAttentionProblem& problem, const DeviceInfo& device,
                          const ParallelWgmmaConfig& config) {
  constexpr double kLaunch = 3.01, kOfKeys = 0.154, kOfValues = 0.711;
  constexpr double kChain = 0.517, kChainOfKeys = 0.231, kChainOfValues = 0.233;
  constexpr double kInTurns = 0.5, kOfOwn = 0.725;  // of a chunk, for a team
  constexpr double kWorkOfKeys = 0.255, kWorkOfValues = 0.367, kWorkOfTwo = 1.126;
  constexpr double kFirst = 0.824, kOfBlock = 2.91;  // of a multiprocessor, and of those behind it
  constexpr double kInitial = 2.45, kOfInitial = 3.32;                // initial states
  constexpr double kOfSum = 0.418, kOfSums = 3, kChainOfSum = 0.252;  // final ones
  constexpr double kSharpness = 3.7;
  const double packed = problem.N > 1 ? 1.25 : 1.0;  // their lengths are unlike each other
  const double keys = config.tile_k / 128.0;
  const double values = config.tile_v / 128.0;
  const bool has_two = config.chunks > 1;
  const double chain =
      (kChain + kChainOfKeys * keys + kChainOfValues * values) * (has_two ? kOfOwn : kInTurns);
  const double of_chunk =
      (kWorkOfKeys * keys + kWorkOfValues * values) * (has_two ? kWorkOfTwo : 1.0);
  const auto blocks = static_cast<double>(parallel_blocks(problem, config));
  const double behind = std::max(blocks - kFirst * device.cores, 0.0);
  const auto tiles = static_cast<double>(problem.H * ceil_div(problem.V, config.tile_v));
  const auto sums =
      static_cast<double>(problem.sequences() * problem.H * ceil_div(problem.V, kSumValues));
  const double besides = kLaunch + kOfKeys * keys + kOfValues * values + rows_us(problem) +
                         (problem.h0 ? kInitial : 0.0) + final_states_us(problem);
  const LikelyLengths lengths(problem);
  return packed * lengths.average([&](double longest) {
    const double others = std::max((lengths.all - longest) / std::max(lengths.others, 1.0), 1.0);
    const double taken =
        problem.N > 1
            ? chunks_taken(longest, config) + lengths.others * chunks_taken(others, config)
            : static_cast<double>(problem.B) * chunks_taken(longest, config);
    const double chunks = std::ceil(longest / kChunkTokens);
    double alone = chain * chunks;
    double all = of_chunk * taken * tiles + kOfBlock * behind;
    if (problem.h0) all += kOfInitial * keys * values * blocks;
    if (problem.ht) {
      alone = std::max(alone, kChainOfSum * (0.5 + keys) * chunks);
      all += kOfSum * (0.5 + keys) * sums * (std::ceil(lengths.mean / kChunkTokens) + kOfSums);
    }
    const double each = all / device.cores;
    return besides +
           std::pow(std::pow(alone, kSharpness) + std::pow(each, kSharpness), 1 / kSharpness);
  });
}

}  // namespace attune::cuda::chunk_wgmma
