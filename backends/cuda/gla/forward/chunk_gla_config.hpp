// What may be tuned of cuda.chunk_gla.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/segment_walk.hpp"

namespace attune::cuda::gla::forward {

struct ChunkGlaConfig {
  using Op = ops::RecurrentAttention;
  int tile_k = 128;  // key channels of a block: up to 256 of them, those past K are zeros
  int segments = 1;  // of a sequence, walked at the same time
  friend constexpr bool operator==(const ChunkGlaConfig&, const ChunkGlaConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{axis("tile_k", &ChunkGlaConfig::tile_k, {128, 256}),
                      launch_axis("segments", &ChunkGlaConfig::segments, kSegments)};
  }
};

}  // namespace attune::cuda::gla::forward
