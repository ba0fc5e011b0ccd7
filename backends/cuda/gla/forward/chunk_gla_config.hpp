// What may be tuned of cuda.chunk_gla.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda::gla::forward {

struct ChunkGlaConfig {
  using Op = ops::RecurrentAttention;
  int tile_k = 128;  // key channels of a block: all of them, those past K are zeros
  friend constexpr bool operator==(const ChunkGlaConfig&, const ChunkGlaConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{axis("tile_k", &ChunkGlaConfig::tile_k, {128, 256})};
  }
};

}  // namespace attune::cuda::gla::forward
