// What may be tuned in the backward pass of f32 on pairs of bf16.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/walks/segments.hpp"

namespace attune::cuda::chunk_mma::backward {

struct BackwardConfig {
  using Op = ops::RecurrentAttentionBackward;
  int segments = 1;  // of a sequence, whose states are found side by side
  friend constexpr bool operator==(const BackwardConfig&, const BackwardConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{launch_axis("segments", &BackwardConfig::segments, kSegmentCounts)};
  }
};

}  // namespace attune::cuda::chunk_mma::backward
