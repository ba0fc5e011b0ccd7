// What may be tuned in the recurrent kernels.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/fused_recurrent/walk.hpp"

namespace attune::cuda {

struct FusedRecurrentConfig {
  using Op = ops::RecurrentAttention;
  int rows_per_lane = 16;  // of the state, times four columns
  int row_warps = 2;       // warps of a block along K
  int column_warps = 2;    // and along V, 32 columns each
  int tokens = 8;          // staged at a time
  friend constexpr bool operator==(const FusedRecurrentConfig&,
                                   const FusedRecurrentConfig&) = default;

  static constexpr auto axes() {
    using Self = FusedRecurrentConfig;
    return std::tuple{axis("rows_per_lane", &Self::rows_per_lane, {8, 16, 32}),
                      launch_axis("row_warps", &Self::row_warps, {1, 2, 4, 8}),
                      launch_axis("column_warps", &Self::column_warps, {1, 2, 4}),
                      launch_axis("tokens", &Self::tokens, {4, 8, 16})};
  }
  constexpr WalkShape shape() const { return {rows_per_lane, row_warps, column_warps, tokens}; }
};

struct FusedRecurrentBackwardConfig {
  using Op = ops::RecurrentAttentionBackward;
  int rows_per_lane = 16;  // of the state or of its transpose, times four columns
  int row_warps = 2;       // warps of a block along the rows of a walk
  int column_warps = 2;    // and along its columns, 32 each
  int tokens = 8;          // staged at a time
  int interval = 256;      // tokens between kept states, from which gradients of gates start
  friend constexpr bool operator==(const FusedRecurrentBackwardConfig&,
                                   const FusedRecurrentBackwardConfig&) = default;

  static constexpr auto axes() {
    using Self = FusedRecurrentBackwardConfig;
    return std::tuple{axis("rows_per_lane", &Self::rows_per_lane, {8, 16, 32}),
                      launch_axis("row_warps", &Self::row_warps, {1, 2, 4, 8}),
                      launch_axis("column_warps", &Self::column_warps, {1, 2, 4}),
                      launch_axis("tokens", &Self::tokens, {4, 8, 16}),
                      launch_axis("interval", &Self::interval, {64, 256})};
  }
  constexpr WalkShape shape() const { return {rows_per_lane, row_warps, column_warps, tokens}; }
};

}  // namespace attune::cuda
