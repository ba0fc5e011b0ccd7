// What may be tuned in the chunked backward pass with a decay for every channel.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda::gla_backward {

inline constexpr int kMostSegments = 32;

struct GlaBackwardConfig {
  using Op = ops::RecurrentAttentionBackward;
  int segments = 1;  // thread blocks that share a sequence, head and block of the state
  friend constexpr bool operator==(const GlaBackwardConfig&, const GlaBackwardConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{
        launch_axis("segments", &GlaBackwardConfig::segments, {1, 2, 4, 8, 16, kMostSegments})};
  }
};

}  // namespace attune::cuda::gla_backward
