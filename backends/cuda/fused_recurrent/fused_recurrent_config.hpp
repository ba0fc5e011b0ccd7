// What may be tuned in the recurrent kernels, and which shapes of a walk are legal for a problem.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <attune/core/config_axes.hpp>
#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>
#include <attune/ops/state_summary_op.hpp>

#include "cuda/fused_recurrent/walk.hpp"

namespace attune::cuda::fused_recurrent {

/// The axes of a WalkShape, in the config of the forward kernel and in that of the backward one,
/// and how many segments a walk is cut into.
template <class Config>
constexpr auto walk_axes() {
  return std::tuple{axis("rows_per_lane", &Config::rows_per_lane, {8, 16, 32}),
                    launch_axis("row_warps", &Config::row_warps, {1, 2, 4, 8}),
                    launch_axis("column_warps", &Config::column_warps, {1, 2, 4}),
                    launch_axis("tokens", &Config::tokens, {4, 8, 16}),
                    launch_axis("segments", &Config::segments, kSegmentCounts)};
}

/// Of the kernels of one walk: the forward pass, and summaries of states.
template <class KernelOp>
struct OneWalkConfig {
  using Op = KernelOp;
  int rows_per_lane = 16;  // of the state, times four columns
  int row_warps = 2;       // warps of a block along K
  int column_warps = 2;    // and along V, 32 columns each
  int tokens = 8;          // staged at a time
  int segments = 1;        // of a sequence, walked side by side
  friend constexpr bool operator==(const OneWalkConfig&, const OneWalkConfig&) = default;

  static constexpr auto axes() { return walk_axes<OneWalkConfig>(); }
  static constexpr OneWalkConfig of(const WalkShape& shape, int segments) {
    return {shape.rows_per_lane, shape.row_warps, shape.column_warps, shape.tokens, segments};
  }
  constexpr WalkShape shape() const { return {rows_per_lane, row_warps, column_warps, tokens}; }
};
using FusedRecurrentConfig = OneWalkConfig<ops::RecurrentAttention>;
using FusedRecurrentSummaryConfig = OneWalkConfig<ops::StateSummary>;

struct FusedRecurrentBackwardConfig {
  using Op = ops::RecurrentAttentionBackward;
  int rows_per_lane = 16;  // of the state or of its transpose, times four columns
  int row_warps = 2;       // warps of a block along the rows of a walk
  int column_warps = 2;    // and along its columns, 32 each
  int tokens = 8;          // staged at a time
  int segments = 1;        // of a sequence, walked side by side
  int interval = 256;      // tokens between checkpoints, from which gradients of gates start
  friend constexpr bool operator==(const FusedRecurrentBackwardConfig&,
                                   const FusedRecurrentBackwardConfig&) = default;

  static constexpr auto axes() {
    using Self = FusedRecurrentBackwardConfig;
    return std::tuple_cat(walk_axes<Self>(),
                          std::tuple{launch_axis("interval", &Self::interval, {16, 64, 256})});
  }
  constexpr WalkShape shape() const { return {rows_per_lane, row_warps, column_warps, tokens}; }
};

/// How the kernels walk, as walks/forward_walk.hpp and walks/summary_walk.hpp ask it.
struct ForwardWalker {
  template <class Config>
  ForwardWalker(const ops::RecurrentAttentionProblem&, const Config& config)
      : shape(config.shape()), segments(config.segments), tokens(config.tokens) {}

  std::int64_t row_blocks(std::int64_t rows) const {
    return fused_recurrent::row_blocks(shape, rows);
  }
  template <class T>
  void launch(const WalkParams& params, cudaStream_t stream) const {
    launch_walk<T>(shape, params, stream);
  }

  WalkShape shape;
  int segments;
  int tokens;
};

/// What a walk's shape depends on.
struct WalkExtents {
  std::int64_t heads = 0;  // of all sequences
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  int gates = 0;  // ChannelGates
  bool exact = false;
  std::int64_t tokens = 0;            // of a sequence, on average
  std::int64_t longest = 0;           // about what the longest sequence has
  std::int64_t segment_multiple = 1;  // that the tokens of a segment are rounded up to
  bool final_only = false;            // the final state is all that is wanted
  bool writes_state = false;          // one is wanted
};
/// Of a walk forward.
WalkExtents forward_extents(const ops::RecurrentAttentionProblem& problem);

/// Tokens of a sequence: on average, and about as many as the longest has, as only the device knows
/// the lengths of packed ones.
std::int64_t mean_tokens(const ops::RecurrentAttentionProblem& problem);
std::int64_t longest_tokens(const ops::RecurrentAttentionProblem& problem);

/// The gates that differ from channel to channel, for walks whose rows are K's channels.
int channel_gates(const ops::RecurrentAttentionProblem& problem);

/// Whether the device is a GPU with compute capability 8.0 or more.
Support needs_gpu(const DeviceInfo& device);

/// A shape is legal when a block has the threads and shared memory for it. One that is larger than
/// the state does no harm.
Support walk_fits(const WalkShape& shape, const WalkExtents& extents, const DeviceInfo& device);

/// The shape to start with; it fits.
WalkShape heuristic_shape(const WalkExtents& extents, const DeviceInfo& device);

/// How many segments to start with: as many as are expected to be fastest. More fill the device,
/// and fewer have fewer states to join; with two or more every token is walked over twice, unless
/// the final state is all that is wanted.
int heuristic_segments(const WalkShape& shape, const WalkExtents& extents,
                       const DeviceInfo& device);

/// At most about twenty; all fit.
std::vector<std::pair<WalkShape, int>> candidate_walks(const WalkExtents& extents,
                                                       const DeviceInfo& device);

}  // namespace attune::cuda::fused_recurrent
