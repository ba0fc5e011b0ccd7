// What may be tuned in the chunked backward pass with a decay for every channel.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda::gla {

struct GlaBackwardConfig {
  using Op = ops::RecurrentAttentionBackward;
  int segments = 1;  // of a sequence and head, walked at the same time
  friend constexpr bool operator==(const GlaBackwardConfig&, const GlaBackwardConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{
        launch_axis("segments", &GlaBackwardConfig::segments, {1, 2, 4, 8, 16, 32, 64, 128})};
  }
};

}  // namespace attune::cuda::gla
