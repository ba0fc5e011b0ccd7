// The kernels of chunk_mma.cuh, segment_states.cuh and split_walk.cuh as host code sees them: their
// shared memory, and how they are launched.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

#include "cuda/chunk_mma/chunk_mma_config.hpp"

namespace attune::cuda::chunk_mma {

// Sizes in shared memory.

constexpr int tile_bytes(int channels, const ChunkMmaConfig& config) {
  return channels / kPanelChannels * config.chunk * kPanelRowBytes;
}
constexpr int stage_bytes(int keys, const ChunkMmaConfig& config) {
  return 2 * tile_bytes(keys, config) + tile_bytes(values_per_block(config), config);
}
constexpr int scores_bytes(const ChunkMmaConfig& config) { return config.chunk * kPanelRowBytes; }

/// The decays of a chunk; b_i is the sum of the log decays from its start to token i.
template <int kChunk>
struct alignas(16) ChunkDecays {
  float log2[kChunk];        // b_i / ln 2
  float from_start[kChunk];  // exp(b_i): of the state at the start, to token i
  float to_end[kChunk];      // exp(b_last - b_i): of what token i wrote, to the end
  float total;               // exp(b_last): of the state over the chunk
};
inline constexpr int kDecayStages = 3;  // of the chunk at hand and of the two after it

/// Shared memory of the main kernel, which needs more than the one of segments' states: stages, two
/// tiles of scores, decays.
constexpr std::size_t shared_bytes(int keys, const ChunkMmaConfig& config) {
  const std::size_t decays = config.chunk == 64 ? sizeof(ChunkDecays<64>) : sizeof(ChunkDecays<32>);
  return static_cast<std::size_t>(config.stages * stage_bytes(keys, config) +
                                  2 * scores_bytes(config)) +
         kDecayStages * decays;
}

/// A tile of f32 is two of 16 bits, the high parts and the low parts.
constexpr int split_stage_bytes(int keys, const ChunkMmaConfig& config) {
  return 2 * stage_bytes(keys, config);
}

/// ChunkDecays<kSplitChunk>, and what its sums leave out.
struct alignas(16) SplitDecays {
  static constexpr bool kPerChannel = false;
  float log2[kSplitChunk];
  float log2_rest[kSplitChunk];  // b_i / ln 2 is log2 + log2_rest: an ulp of b_i may be too much
  float from_start[kSplitChunk];
  float to_end[kSplitChunk];
  float total;
};

/// The decays of a chunk where key channels have gates. Those of its tokens are in q and k already
/// (channel_operands.hpp).
template <int kKeys>
struct alignas(16) ChannelDecays {
  static constexpr bool kPerChannel = true;
  float2 totals[kKeys];  // of the state over the chunk: exp() as a sum of two
  bool is_strong;        // q and k are as they came
};

/// Shared memory of the main kernel: stages, two tiles of scores, decays.
constexpr std::size_t split_shared_bytes(int keys, bool key_gates, const ChunkMmaConfig& config) {
  const std::size_t decays = !key_gates   ? sizeof(SplitDecays)
                             : keys == 64 ? sizeof(ChannelDecays<64>)
                                          : sizeof(ChannelDecays<128>);
  return static_cast<std::size_t>(config.stages * split_stage_bytes(keys, config) +
                                  2 * kSplitChunk * kPanelRowBytes) +
         kDecayStages * decays;
}

/// What the kernels of f32 are given. Where key channels have gates, q and k are what
/// channel_operands.hpp made of them, and segments have a decay for every key channel.
struct SplitWalkParams : SegmentWalkParams {
  explicit SplitWalkParams(const SegmentWalkParams& params)
      : SegmentWalkParams(params), heads_per_key(params.heads_per_kv) {}

  int heads_per_key;
  GateView gk;
  const float2* chunk_totals = nullptr;  // [part, H, padded keys]
  const int* is_strong = nullptr;        // [part, H]
};

/// Queues what finds the states of all segments but the last; only with more than one.
template <class T>
void launch_segment_states(const SegmentWalkParams& params, const ChunkMmaConfig& config,
                           cudaStream_t stream);
/// Queues what makes outputs and final states.
template <class T>
void launch_chunk_mma(const SegmentWalkParams& params, const ChunkMmaConfig& config,
                      cudaStream_t stream);

/// The same for f32, on pairs of bf16; T is float.
template <class T>
void launch_split_segment_states(const SplitWalkParams& params, const ChunkMmaConfig& config,
                                 cudaStream_t stream);
template <class T>
void launch_split_walk(const SplitWalkParams& params, const ChunkMmaConfig& config,
                       cudaStream_t stream);

}  // namespace attune::cuda::chunk_mma
