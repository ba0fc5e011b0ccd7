// How a problem of cuda.chunk_mma is cut into blocks, and how many of them a device has room for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/chunk_mma/channel_operands.hpp"
#include "cuda/chunk_mma/chunk_mma.hpp"
#include "cuda/chunks/key_slices.hpp"
#include "cuda/chunks/segment_counts.hpp"

namespace attune::cuda::chunk_mma {

using Config = ChunkMmaConfig;
using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

inline bool is_split(const Problem& problem) { return problem.dtype == DType::kF32; }
inline bool has_key_gates(const Problem& problem) { return (problem.gates & ops::kGateGk) != 0; }
inline bool has_value_gates(const Problem& problem) { return (problem.gates & ops::kGateGv) != 0; }
inline bool has_channel_gates(const Problem& problem) {
  return has_key_gates(problem) || has_value_gates(problem);
}
inline Gated gated_channels(const Problem& problem) {
  return has_value_gates(problem) ? Gated::kValues
         : has_key_gates(problem) ? Gated::kKeys
                                  : Gated::kNone;
}

/// Key channels of a block: more go slice by slice, in 16 bits by as many launches
/// (key_slices.hpp), in f32 side by side.
inline std::int64_t most_keys(const Problem& problem) {
  return is_split(problem) ? kMaxSplitKeys : kMostKeys;
}
inline int padded_slice_keys(const Problem& problem) {
  return padded_keys(std::min(problem.K, most_keys(problem)));
}
inline std::int64_t slices_of_launch(const Problem& problem) {
  return is_split(problem) ? ceil_div(problem.K, kMaxSplitKeys) : 1;
}
/// Channels that there are decays of.
inline std::int64_t padded_key_operands(const Problem& problem) {
  return slices_of_launch(problem) * padded_slice_keys(problem);
}
inline std::int64_t padded_value_operands(const Problem& problem) {
  return operand_groups(problem.V) * kOperandChannels;
}

/// Key channels of a last slice that goes by itself, with blocks as narrow as it is, once the others
/// have been walked; else 0. Where walks are long, or blocks many, a launch more costs less than blocks
/// that are wider than their slice; not where one of several packed sequences may be longer than all
/// others.
inline std::int64_t narrow_tail(const Problem& problem) {
  constexpr std::int64_t kLongWalk = 2048, kShortWalk = 128;  // tokens of a sequence
  constexpr std::int64_t kManyBlocks = 3 * 132;  // three on each multiprocessor of an H100
  if (!is_split(problem) || problem.K <= kMaxSplitKeys || problem.N > 1) return 0;
  const bool many =
      problem.T >= kShortWalk &&
      problem.sequences() * problem.H * value_tiles(problem, 2 * kPanelChannels) >= kManyBlocks;
  if (problem.T < kLongWalk && !many) return 0;
  const std::int64_t tail = problem.K % kMaxSplitKeys;
  return tail <= kPanelChannels ? tail : 0;
}
inline Problem with_keys(Problem problem, std::int64_t keys) {
  problem.K = keys;
  return problem;
}
/// What is walked at once, before such a tail.
inline Problem first_walk(const Problem& problem) {
  return with_keys(problem, problem.K - narrow_tail(problem));
}

/// Blocks that walk a head.
inline std::int64_t head_tiles(const Problem& problem, const Config& config) {
  return value_tiles(problem, values_per_block(config)) * slices_of_launch(problem);
}
/// Blocks of the kernel that makes the outputs.
inline std::int64_t block_count(const Problem& problem, const Config& config) {
  return problem.sequences() * problem.H * head_tiles(problem, config) * config.segments;
}

/// Segments of fewer chunks do not pay for their states.
inline std::int64_t least_tokens(const Config& config) {
  constexpr std::int64_t kMinChunks = 4;
  return kMinChunks * config.chunk;
}
inline SequenceParts parts_of(const Problem& problem, const Config& config) {
  return walked_parts(problem, head_tiles(problem, config), config.segments, least_tokens(config));
}

/// Of a block's state.
inline std::int64_t state_bytes(const Problem& problem, const Config& config) {
  return std::int64_t{padded_slice_keys(problem)} * values_per_block(config) *
         std::int64_t{sizeof(float)};
}
/// Whether what segments start from is made ahead.
inline bool has_starts(const Problem& problem, const SequenceParts& parts, const Config& config) {
  return parts.tokens == 0 && makes_starts(config.segments, state_bytes(problem, config));
}

/// Of the outputs that a slice of key channels makes: a row of whole sectors of memory, and all rows.
inline std::int64_t plane_row(const Problem& problem) { return padded_channels(problem.V); }
inline std::int64_t plane_elements(const Problem& problem) {
  return problem.B * problem.T * problem.H * plane_row(problem);
}

inline std::size_t shared_bytes(const Problem& problem, const Config& config) {
  const int keys = padded_slice_keys(problem);
  return is_split(problem) ? split_shared_bytes(keys, gated_channels(problem), config)
                           : shared_bytes(keys, config);
}

/// Blocks that a device has room for at once.
inline std::int64_t room_for(const Problem& problem, const DeviceInfo& device,
                             const Config& config) {
  const int by_registers = is_split(problem) ? split_resident_blocks(config)
                                             : resident_blocks(padded_slice_keys(problem), config);
  return room_for_blocks(device, static_cast<std::int64_t>(shared_bytes(problem, config)),
                         by_registers);
}

/// In f32 the first walk takes less of both, and segments in several rounds of blocks, up to as many
/// as parts_by_length() makes, leave less of a device idle: fitted to thirteen numbers of 36 walks.
inline int segments_for(const Problem& problem, const DeviceInfo& device, Config config) {
  constexpr SegmentTimes kOfSplit{.both_walks = 1.4,
                                  .launch = 1,
                                  .state = 0.15,
                                  .starts = 1,
                                  .start = 0.06,
                                  .block = 2,
                                  .most_blocks = 4,
                                  .long_segment = 1};
  config.segments = 1;
  const Problem first = first_walk(problem);
  return cheapest_segments({.blocks = block_count(first, config),
                            .room = room_for(first, device, config),
                            .chunks = mean_chunks(first, config.chunk),
                            .state_bytes = bytes_for_starts(first, state_bytes(first, config))},
                           device, is_split(problem) ? kOfSplit : SegmentTimes{})
      .segments;
}

}  // namespace attune::cuda::chunk_mma
