// What may be tuned in the kernels of chunk_mma.cuh and split_walk.cuh, and which of it is
// compiled.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/segment_walk.hpp"

namespace attune::cuda::chunk_mma {

struct ChunkMmaConfig {
  using Op = ops::RecurrentAttention;
  int warps = 8;     // of a block, which has 16 value channels a warp
  int chunk = 64;    // tokens handled by one round of products
  int stages = 3;    // chunks of q, k and v in shared memory
  int segments = 1;  // a sequence is cut into; all but the last are read twice
  friend constexpr bool operator==(const ChunkMmaConfig&, const ChunkMmaConfig&) = default;

  static constexpr auto axes() {
    using Self = ChunkMmaConfig;
    return std::tuple{axis("warps", &Self::warps, {4, 8}), axis("chunk", &Self::chunk, {32, 64}),
                      launch_axis("stages", &Self::stages, {2, 3}),
                      launch_axis("segments", &Self::segments, kSegments)};
  }
};

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

/// Blocks that the registers of a multiprocessor are divided among, in the main kernel and in the
/// one of the segments' states: more blocks hide more latency, until registers spill.
constexpr int resident_blocks(int keys, const ChunkMmaConfig& config) {
  const int elements = (keys + config.chunk) / 2;  // of state and outputs, a thread
  const int warps = elements <= 48 ? 16 : elements <= 80 ? 12 : 8;
  return warps / config.warps;
}
constexpr int segment_resident_blocks(int keys) { return keys <= 64 ? 4 : keys <= 128 ? 3 : 2; }

// f32, each value split into two of bf16.

inline constexpr int kSplitChunk = 32;  // tokens: a token a lane where decays are summed
inline constexpr int kMaxSplitKeys = 128;
inline constexpr int kChannelsPerSplitCopy = 4;  // of f32: what one load takes

constexpr bool is_compiled_split(int keys, const ChunkMmaConfig& config) {
  return keys <= kMaxSplitKeys && config.chunk == kSplitChunk;
}

/// The same for f32.
constexpr int split_resident_blocks(const ChunkMmaConfig& config) { return 8 / config.warps; }

}  // namespace attune::cuda::chunk_mma
