// The kernels of chunk_mma.cuh and segment_states.cuh as host code sees them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "config.hpp"
#include "cuda/chunks/segment_walk.hpp"

namespace attune::cuda {

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

/// Queues what finds the states of all segments but the last; only with more than one.
template <class T>
void launch_segment_states(const SegmentWalkParams& params, const ChunkMmaConfig& config,
                           cudaStream_t stream);
/// Queues what makes outputs and final states.
template <class T>
void launch_chunk_mma(const SegmentWalkParams& params, const ChunkMmaConfig& config,
                      cudaStream_t stream);

}  // namespace attune::cuda
