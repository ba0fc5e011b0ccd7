// The kernels of chunk_mma.cuh and segment_states.cuh as host code sees them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "config.hpp"
#include "cuda/chunks/views.hpp"

namespace attune::cuda {

inline constexpr int kMostKeys = 256;
inline constexpr int kChannelsPerCopy = 8;  // of 16 bits: what one asynchronous copy takes
inline constexpr int kValuesPerWarp = 16;   // rows of an mma
inline constexpr int kPanelChannels = 64;   // of a tile's 128-byte rows
inline constexpr int kPanelRowBytes = 128;

/// Key channels a kernel is compiled for: those beyond K are zeros.
constexpr int padded_keys(std::int64_t keys) {
  return static_cast<int>((keys + kPanelChannels - 1) / kPanelChannels * kPanelChannels);
}
constexpr int values_per_block(const ChunkMmaConfig& config) {
  return kValuesPerWarp * config.warps;
}
constexpr int threads_per_block(const ChunkMmaConfig& config) { return 32 * config.warps; }

/// The blocks that find the segments' states have four warps: these wait much and need little.
inline constexpr int kSegmentWarps = 4;
constexpr ChunkMmaConfig segment_config(ChunkMmaConfig config) {
  config.warps = kSegmentWarps;
  return config;
}

/// Longer chunks of more channels do not fit into the registers.
constexpr bool is_compiled(int keys, const ChunkMmaConfig& config) {
  return keys <= 128 || config.chunk == 32;
}

/// Blocks that the registers of a multiprocessor are shared out for, in the main kernel and in the
/// one of the segments' states: more of them hide more waiting, until registers spill.
constexpr int resident_blocks(int keys, const ChunkMmaConfig& config) {
  const int elements = (keys + config.chunk) / 2;  // of state and outputs, a thread
  const int warps = elements <= 48 ? 16 : elements <= 80 ? 12 : 8;
  return warps / config.warps;
}
constexpr int segment_resident_blocks(int keys) { return keys <= 64 ? 4 : keys <= 128 ? 3 : 2; }

/// Sizes of what lies in shared memory.
constexpr int tile_bytes(int channels, const ChunkMmaConfig& config) {
  return channels / kPanelChannels * config.chunk * kPanelRowBytes;
}
constexpr int stage_bytes(int keys, const ChunkMmaConfig& config) {
  return 2 * tile_bytes(keys, config) + tile_bytes(values_per_block(config), config);
}
constexpr int weights_bytes(const ChunkMmaConfig& config) { return config.chunk * kPanelRowBytes; }

/// Factors of a chunk that come from its log decays; b_i is their sum from its start to token i.
template <int kChunk>
struct alignas(16) ChunkDecays {
  float log2[kChunk];        // b_i / ln 2
  float from_start[kChunk];  // exp(b_i): of what the chunk found
  float to_end[kChunk];      // exp(b_last - b_i): of what token i wrote
  float whole;               // exp(b_last)
};
inline constexpr int kDecaysKept = 3;  // of the chunk at hand and of the two after it

/// Shared memory of the main kernel, which needs more than the other one: stages, P twice, decays.
constexpr std::size_t shared_bytes(int keys, const ChunkMmaConfig& config) {
  const std::size_t decays = config.chunk == 64 ? sizeof(ChunkDecays<64>) : sizeof(ChunkDecays<32>);
  return static_cast<std::size_t>(config.stages * stage_bytes(keys, config) +
                                  2 * weights_bytes(config)) +
         kDecaysKept * decays;
}

struct ChunkMmaParams {
  ConstTokenView q, k, v;
  GateView g;
  ConstantDecayView gamma;
  ConstStateView initial_state;
  TokenView o;
  StateView final_state;
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

/// Queues what finds the states of all segments but the last; only with more than one.
template <class T>
void launch_segment_states(const ChunkMmaParams& params, const ChunkMmaConfig& config,
                           cudaStream_t stream);
/// Queues what makes outputs and final states.
template <class T>
void launch_chunk_mma(const ChunkMmaParams& params, const ChunkMmaConfig& config,
                      cudaStream_t stream);

}  // namespace attune::cuda
