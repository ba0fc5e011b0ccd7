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
  static constexpr bool kOfValues = false;
  float log2[kSplitChunk];
  float log2_rest[kSplitChunk];  // b_i / ln 2 is log2 + log2_rest: an ulp of b_i may be too much
  float from_start[kSplitChunk];
  float to_end[kSplitChunk];
  float total;
};

/// Which channels of f32 have gates; part of a kernel's type. kValues: value channels have, and key
/// channels may.
enum class Gated { kNone, kKeys, kValues };

/// The decays of a chunk's key channels, or of its value channels. Those of tokens are in the
/// operands already (channel_operands.hpp).
template <int kChannels>
struct alignas(16) ChannelTotals {
  float2 totals[kChannels];  // of the state over the chunk: exp() as a sum of two
  bool is_strong;            // operands are as they came
};
/// Where both may have gates, or keys alone; channels without a gate have ones.
template <int kKeys, int kValues>
struct ChannelDecays {
  static constexpr bool kPerChannel = true;
  static constexpr bool kOfValues = true;
  ChannelTotals<kKeys> keys;
  ChannelTotals<kValues> values;
};
template <int kKeys>
struct ChannelDecays<kKeys, 0> {
  static constexpr bool kPerChannel = true;
  static constexpr bool kOfValues = false;
  ChannelTotals<kKeys> keys;
};
constexpr std::size_t channel_totals_bytes(int channels) {
  return static_cast<std::size_t>(channels) * sizeof(float2) + alignof(ChannelTotals<64>);
}
static_assert(channel_totals_bytes(64) == sizeof(ChannelTotals<64>));

/// Factors of a chunk's outputs, where value channels have gates: rows of a warp's channels, padded
/// so that lanes read different banks.
inline constexpr int kFactorStride = kValuesPerWarp + 4;
constexpr int output_factors_bytes(const ChunkMmaConfig& config) {
  return config.warps * kSplitChunk * kFactorStride * static_cast<int>(sizeof(float));
}

/// Decays of the three chunks in stages and of the one behind them.
inline constexpr int kSplitDecayStages = 4;

/// Shared memory of the main kernel: stages, the scores of each, decays, factors of outputs.
constexpr std::size_t split_shared_bytes(int keys, Gated gated, const ChunkMmaConfig& config) {
  std::size_t decays = gated == Gated::kNone ? sizeof(SplitDecays) : channel_totals_bytes(keys);
  int tiles = config.stages * (split_stage_bytes(keys, config) + kSplitChunk * kPanelRowBytes);
  if (gated == Gated::kValues) {
    decays += channel_totals_bytes(values_per_block(config));
    tiles += output_factors_bytes(config);
  }
  return static_cast<std::size_t>(tiles) + kSplitDecayStages * decays;
}

/// What channel_operands.hpp leaves of the decays of chunks of 32 tokens; null where there are no
/// gates. A group of kOperandChannels channels is strong or not.
struct ChunkTotalsView {
  const float2* totals = nullptr;  // [part, H, channels]
  const int* is_strong = nullptr;  // [part, H, groups]
  int channels = 0;                // with those that pad the last group
};
inline constexpr int kOperandChannels = 128;

/// What the kernels of f32 are given. Where key channels have gates, q and k are what
/// channel_operands.hpp made of them, and where value channels have, v is, and outputs are to be
/// multiplied by factors. Segments have a decay for every channel of both then. More keys than a
/// block has go in slices, each of which leaves a plane of outputs.
struct SplitWalkParams : SegmentWalkParams {
  explicit SplitWalkParams(const SegmentWalkParams& params)
      : SegmentWalkParams(params),
        heads_per_key(params.heads_per_kv),
        heads_per_value(params.heads_per_kv) {}

  constexpr Gated gated() const {
    return gv.given() ? Gated::kValues : gk.given() ? Gated::kKeys : Gated::kNone;
  }

  int slices = 1;
  std::int64_t output_plane = 0;  // elements
  int heads_per_key;
  int heads_per_value;
  GateView gk;
  GateView gv;
  ChunkTotalsView keys;
  ChunkTotalsView values;
  ConstTokenView output_factors;
  float* segment_value_decays = nullptr;  // [segment, values.channels]
};

/// Queues what finds the states of all segments but the last; only with more than one.
template <class T>
void launch_segment_states(const SegmentWalkParams& params, const ChunkMmaConfig& config,
                           cudaStream_t stream);
/// Queues what makes outputs and final states.
template <class T>
void launch_chunk_mma(const SegmentWalkParams& params, const ChunkMmaConfig& config,
                      cudaStream_t stream);

/// The same for f32, on pairs of bf16; T is float, kGated what params.gated() says.
template <class T, Gated kGated>
void launch_split_segment_states(const SplitWalkParams& params, const ChunkMmaConfig& config,
                                 cudaStream_t stream);
template <class T, Gated kGated>
void launch_split_walk(const SplitWalkParams& params, const ChunkMmaConfig& config,
                       cudaStream_t stream);

}  // namespace attune::cuda::chunk_mma
