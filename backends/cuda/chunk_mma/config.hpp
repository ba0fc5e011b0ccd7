// What may be tuned in the kernel of chunk_mma.cuh.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda {

struct ChunkMmaConfig {
  using Op = ops::RecurrentAttention;
  int warps = 8;     // of a block, which has 16 value channels a warp
  int chunk = 64;    // tokens handled by one round of products
  int stages = 3;    // chunks of q, k and v in shared memory
  int segments = 1;  // parts a sequence is cut into; all but the last are read twice
  friend constexpr bool operator==(const ChunkMmaConfig&, const ChunkMmaConfig&) = default;

  static constexpr auto axes() {
    using Self = ChunkMmaConfig;
    return std::tuple{axis("warps", &Self::warps, {4, 8}), axis("chunk", &Self::chunk, {32, 64}),
                      launch_axis("stages", &Self::stages, {2, 3}),
                      launch_axis("segments", &Self::segments, {1, 2, 4, 8, 16})};
  }
};

}  // namespace attune::cuda
