// Sequences cut into segments that blocks walk chunk by chunk with mma.sync: the parameters of such
// kernels, and how many segments a problem is cut into. segment_walk.cuh has the device's side.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cstdint>
#include <iterator>

#include <attune/core/device.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/views.hpp"
#include "cuda/tiles/panel.hpp"

namespace attune::cuda {

inline constexpr int kChannelsPerCopy = 8;  // of 16 bits: what one asynchronous copy takes
inline constexpr int kValuesPerWarp = 16;   // rows of an mma
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;  // positions are 32 bits

/// Key channels that kernels are compiled for: those beyond K are zeros.
inline constexpr int kPaddedKeys[] = {64, 128, 192, 256};
inline constexpr int kMostKeys = *std::rbegin(kPaddedKeys);
constexpr int padded_keys(std::int64_t keys) {
  return static_cast<int>((keys + kPanelChannels - 1) / kPanelChannels * kPanelChannels);
}

/// Values of the axis `segments`: how many a sequence is cut into. Few heads want one block a
/// multiprocessor and no more: powers of two alone would leave up to half of a device without a
/// block, these leave a thirtieth at most.
inline constexpr int kSegments[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 16,
                                    18, 20, 22, 24, 26, 28, 32, 36, 40, 44, 48, 64, 96, 128};

/// Which segment of which sequence a part is: none where the sequence has no more than `segment`.
struct alignas(16) PartPlace {
  int sequence = 0;
  int segment = 0;
  int segments = 0;  // of the sequence
};

/// Packed sequences cut by their own lengths, each into as many segments as it has so many tokens,
/// which are numbered as in walks/sequence_parts.hpp. Or those of them that are walked, none of which
/// is cut, where short ones are left out.
struct SequenceParts {
  std::int64_t tokens = 0;  // 0: all are cut into as many
  std::int64_t count = 0;   // of numbers
  PartPlace* places = nullptr;
  /// Of what segments of a head add to the state, if a kernel asks: those of sequences in several
  /// segments, from 1 / tokens of the tokens before them on.
  PartPlace* sum_places = nullptr;
  bool are_whole = false;

  constexpr std::int64_t places_bytes() const { return count * std::int64_t{sizeof(PartPlace)}; }
  /// What segments of a head add to the state, all of them.
  constexpr std::int64_t sums(std::int64_t all_tokens) const { return all_tokens / tokens + 1; }
};

/// Strides of what segments add to the state. Where sequences are cut by length, theirs begin at
/// 2^-32 of_tokens times the tokens before them.
struct SumStrides {
  std::int64_t slice = 0;  // of key channels
  std::int64_t sequence = 0;
  std::int64_t head = 0;
  unsigned of_tokens = 0;
};

/// What a kernel that walks segments chunk by chunk is given.
struct SegmentWalkParams {
  ConstTokenView q, k, v;
  GateView g;
  ConstantDecayView gamma;
  ConstStateView initial_state;
  TokenView o;
  StateView final_state;
  SnapshotsView snapshots;
  SequencesView sequences;
  std::int64_t sequence_count = 0;
  int heads = 1;
  int heads_per_kv = 1;
  int key_channels = 0;
  int value_channels = 0;
  int value_tiles = 1;  // blocks a head is spread over
  float scale = 1;
  bool reverse = false;
  int stages = 2;
  int segments = 1;
  SequenceParts parts;
  SumStrides sums;
  /// With more than one segment: [sequence, head, segment, warp, K / 8, lane] of every warp's
  /// state, and [sequence, head, segment] of the segments' decays; of parts [head, sum, ...].
  float4* segment_states = nullptr;
  float* segment_decays = nullptr;
  /// What a segment adds has been made what the next one starts from (segment_starts.hpp).
  bool has_starts = false;

  /// Whether a launch finds what segments add to the state, first.
  constexpr bool is_cut() const { return segments > 1 || (parts.tokens > 0 && !parts.are_whole); }
  /// With so many of a sequence and head where all are cut into as many segments. By length, as
  /// many as there are, or more, begin before the next sequence's: of_tokens is rounded up.
  constexpr void set_sums(std::int64_t of_head) {
    constexpr std::int64_t kOne = std::int64_t{1} << 32;
    sums = {
        .slice = sequence_count * heads * of_head, .sequence = heads * of_head, .head = of_head};
    if (parts.tokens == 0) return;
    const std::int64_t of_parts = parts.sums(sequences.tokens);
    sums = {.slice = heads * of_parts,
            .sequence = 0,
            .head = of_parts,
            .of_tokens = static_cast<unsigned>((kOne + parts.tokens - 1) / parts.tokens)};
  }
};

/// Blocks of a grid of so many segments a sequence, or of parts.
constexpr unsigned block_count(const SegmentWalkParams& params, int segments) {
  const bool by_parts = params.parts.tokens > 0;
  const std::int64_t walks = by_parts ? params.parts.count : params.sequence_count * segments;
  return static_cast<unsigned>(walks * params.heads * params.value_tiles);
}

/// Blocks of `values` value channels.
std::int64_t value_tiles(const ops::RecurrentAttentionProblem& problem, int values);

/// All parameters but those of the segments' workspace.
SegmentWalkParams walk_params(const ops::RecurrentAttentionProblem& problem,
                              const ops::RecurrentAttentionArgs& args, int values, int stages,
                              int segments);

/// Blocks that a device has room for at once: as many a multiprocessor as there is memory for, and
/// `by_registers` at most.
std::int64_t room_for_blocks(const DeviceInfo& device, std::int64_t block_bytes, int by_registers);

/// Packed sequences in `segments` on average, as a batch of that length, longer ones in more: one
/// may have most of the tokens, for all the host knows. Not where the value tiles of all heads keep
/// a device busy while it is walked. Of averages that stay whole, segments have `least_tokens`.
SequenceParts parts_by_length(const ops::RecurrentAttentionProblem& problem, std::int64_t tiles,
                              int segments, std::int64_t least_tokens);

/// The same, or the parts of a walk that leaves short sequences out.
SequenceParts walked_parts(const ops::RecurrentAttentionProblem& problem, std::int64_t tiles,
                           int segments, std::int64_t least_tokens);

/// Queues what finds the places of all parts, if there are any; goes before the walks.
void launch_part_places(const SequencesView& sequences, std::int64_t sequence_count,
                        const SequenceParts& parts, cudaStream_t stream);
inline void launch_part_places(const SegmentWalkParams& params, cudaStream_t stream) {
  launch_part_places(params.sequences, params.sequence_count, params.parts, stream);
}

/// Whether a tuner tries `segments` where so many as `expected` are expected to be the fastest.
constexpr bool is_near(int segments, int expected) {
  return segments == expected || segments == expected / 2 || segments == 2 * expected;
}

}  // namespace attune::cuda
