// What may be tuned in the kernels that walk in chunks on tensor cores, and which tiles are legal.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <tuple>
#include <vector>

#include <attune/core/config_axes.hpp>
#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>
#include <attune/ops/state_summary_op.hpp>

#include "cuda/chunk_tf32/walk.hpp"

namespace attune::cuda::chunk_tf32 {

/// The axes of a walk, in the config of the forward kernel and in that of the backward one.
template <class Config>
constexpr auto walk_axes() {
  return std::tuple{axis("rows", &Config::rows, {32, 64, 128}),
                    launch_axis("column_warps", &Config::column_warps, {1, 2, 4, 8}),
                    launch_axis("segments", &Config::segments, kSegmentCounts)};
}

/// A tile and a number of segments.
struct WalkChoice {
  WalkTile tile;
  int segments = 1;
};

/// Of the kernels of one walk: the forward pass, and summaries of states.
template <class KernelOp>
struct OneWalkConfig {
  using Op = KernelOp;
  int rows = 64;         // of a block's tile of the state
  int column_warps = 4;  // 16 columns each
  int segments = 1;      // of a sequence, walked side by side
  friend constexpr bool operator==(const OneWalkConfig&, const OneWalkConfig&) = default;

  static constexpr auto axes() { return walk_axes<OneWalkConfig>(); }
  static constexpr OneWalkConfig of(const WalkChoice& choice) {
    return {choice.tile.rows, choice.tile.column_warps, choice.segments};
  }
  constexpr WalkTile tile() const { return {rows, column_warps}; }
};
using ChunkTf32Config = OneWalkConfig<ops::RecurrentAttention>;
using ChunkTf32SummaryConfig = OneWalkConfig<ops::StateSummary>;

struct ChunkTf32BackwardConfig {
  using Op = ops::RecurrentAttentionBackward;
  int rows = 64;         // of a block's tile of the state or of its transpose
  int column_warps = 4;  // 16 columns each
  int segments = 1;      // of a sequence, walked side by side
  int interval = 64;     // tokens between checkpoints, from which gradients of gates start
  friend constexpr bool operator==(const ChunkTf32BackwardConfig&,
                                   const ChunkTf32BackwardConfig&) = default;

  static constexpr auto axes() {
    using Self = ChunkTf32BackwardConfig;
    return std::tuple_cat(walk_axes<Self>(),
                          std::tuple{launch_axis("interval", &Self::interval, {16, 64, 128, 256})});
  }
  constexpr WalkTile tile() const { return {rows, column_warps}; }
};

/// What a choice of tile depends on.
struct WalkExtents {
  std::int64_t heads = 0;  // of all sequences
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t tokens = 0;          // of a sequence, on average
  std::array<double, 3> longest{};  // what the longest may have (chunks/likely_lengths.hpp)
  int parts = 1;                    // of operands
  bool column_gates = false;
  bool final_only = false;  // the final state is all that is wanted
};
/// Of a walk forward.
WalkExtents forward_extents(const ops::RecurrentAttentionProblem& problem);

/// Low parts too, where the problem is f32 and may not be taken as TF32.
int operand_parts(const ops::RecurrentAttentionProblem& problem);

/// How the kernels walk forward, as walks/forward_walk.hpp and walks/summary_walk.hpp ask it.
struct ForwardWalker {
  template <class Op>
  ForwardWalker(const ops::RecurrentAttentionProblem& problem, const OneWalkConfig<Op>& config)
      : tile(config.tile()), parts(operand_parts(problem)), segments(config.segments) {}

  std::int64_t row_blocks(std::int64_t rows) const { return chunk_tf32::row_blocks(tile, rows); }
  template <class T>
  void launch(const WalkParams& params, cudaStream_t stream) const {
    launch_chunk_walk<T>(tile, parts, params, stream);
  }

  WalkTile tile;
  int parts;
  int segments;
  int tokens = kChunk;
};

/// Whether the device is a GPU with compute capability 8.0 or more, and sequences are not so short
/// that most of a chunk would be empty.
Support takes(const ops::RecurrentAttentionProblem& problem, const DeviceInfo& device);

/// Whether a block has the threads and the shared memory.
Support tile_fits(const WalkTile& tile, const WalkExtents& extents, const DeviceInfo& device);

/// Microseconds that a walk is expected to take.
double walk_us(const WalkTile& tile, const WalkExtents& extents, const DeviceInfo& device,
               std::int64_t segments);

/// The tile to start with; it fits.
WalkTile heuristic_tile(const WalkExtents& extents, const DeviceInfo& device);

/// Where that pays for walking the tokens twice, or for joining states, about as many as the device
/// has room for.
int heuristic_segments(const WalkTile& tile, const WalkExtents& extents, const DeviceInfo& device);

/// At most about a dozen; all fit.
std::vector<WalkChoice> candidate_walks(const WalkExtents& extents, const DeviceInfo& device);

}  // namespace attune::cuda::chunk_tf32
