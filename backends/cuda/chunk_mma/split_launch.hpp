// The kernels of split_walk.cuh as host code sees them: launch.hpp's, for f32.
#pragma once

#include "launch.hpp"

namespace attune::cuda {

inline constexpr int kSplitChunk = 32;  // tokens: a token a lane where decays are summed
inline constexpr int kMostSplitKeys = 128;
inline constexpr int kChannelsPerSplitCopy = 4;  // of f32: what one load takes

constexpr bool is_compiled_split(int keys, const ChunkMmaConfig& config) {
  return keys <= kMostSplitKeys && config.chunk == kSplitChunk;
}

/// Blocks that the registers of a multiprocessor are shared out for.
constexpr int split_resident_blocks(const ChunkMmaConfig& config) { return 8 / config.warps; }

/// Tiles are two parts of 16 bits, as large as f32.
constexpr int split_stage_bytes(int keys, const ChunkMmaConfig& config) {
  return 2 * stage_bytes(keys, config);
}

/// ChunkDecays<kSplitChunk>, and what its sums leave out.
struct alignas(16) SplitDecays {
  float log2[kSplitChunk];
  float log2_rest[kSplitChunk];  // b_i / ln 2 is log2 + log2_rest: an ulp of b_i may be too much
  float from_start[kSplitChunk];
  float to_end[kSplitChunk];
  float whole;
};

/// Shared memory of the main kernel: stages, P twice, decays.
constexpr std::size_t split_shared_bytes(int keys, const ChunkMmaConfig& config) {
  return static_cast<std::size_t>(config.stages * split_stage_bytes(keys, config) +
                                  2 * kSplitChunk * kPanelRowBytes) +
         kDecaysKept * sizeof(SplitDecays);
}

/// Queues what finds the states of all segments but the last; only with more than one.
void launch_split_segment_states(const SegmentWalkParams& params, const ChunkMmaConfig& config,
                                 cudaStream_t stream);
/// Queues what makes outputs and final states.
void launch_split_walk(const SegmentWalkParams& params, const ChunkMmaConfig& config,
                       cudaStream_t stream);

}  // namespace attune::cuda
