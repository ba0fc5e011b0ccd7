// What may be tuned in the chunked backward pass.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda::chunk_backward {

inline constexpr int kMostSegments = 16;

struct ChunkBackwardConfig {
  using Op = ops::RecurrentAttentionBackward;
  int segments = 1;  // thread blocks that share a sequence and head
  friend constexpr bool operator==(const ChunkBackwardConfig&,
                                   const ChunkBackwardConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{launch_axis("segments", &ChunkBackwardConfig::segments, {1, 2, 4, 8, 16})};
  }
};

}  // namespace attune::cuda::chunk_backward
