// Sequences cut into segments that blocks walk chunk by chunk with mma.sync: the parameters of such
// kernels, and how many segments a problem is cut into. segment_walk.cuh has the device's side.
#pragma once

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

/// Values of the axis `segments`: how many a sequence is cut into.
inline constexpr int kSegments[] = {1, 2, 4, 8, 16};
inline constexpr int kMostSegments = *std::rbegin(kSegments);

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
  /// With more than one segment: [sequence, head, segment, warp, K / 8, lane] of every warp's
  /// state, and [sequence, head, segment] of the segments' decays.
  float4* segment_states = nullptr;
  float* segment_decays = nullptr;
};

/// Blocks of `values` value channels.
std::int64_t value_tiles(const ops::RecurrentAttentionProblem& problem, int values);

/// All parameters but those of the segments' workspace.
SegmentWalkParams walk_params(const ops::RecurrentAttentionProblem& problem,
                              const ops::RecurrentAttentionArgs& args, int values, int stages,
                              int segments);

/// Blocks that a device has room for at once: as many a multiprocessor as there is memory for, and
/// `by_registers` at most.
std::int64_t room_for_blocks(const DeviceInfo& device, std::int64_t block_bytes, int by_registers);

/// As many segments as a device has room for where one segment a sequence makes `blocks` blocks,
/// each of `least_tokens` or more: shorter ones do not pay for storing and loading a state. The
/// lengths of packed sequences are not known on the host, so their mean is taken.
int segments_for(const ops::RecurrentAttentionProblem& problem, std::int64_t blocks,
                 std::int64_t room, std::int64_t least_tokens);

}  // namespace attune::cuda
