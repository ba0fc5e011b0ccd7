// What may be tuned in cuda.gla_mma.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/segment_walk.hpp"

namespace attune::cuda::gla_mma {

struct GlaMmaConfig {
  using Op = ops::RecurrentAttention;
  int tile_v = 128;  // value channels of a block; databases know it as "values"
  int stages = 4;    // chunks of q, k, v and gates in shared memory
  int segments = 1;  // a sequence is cut into; all but the last are read twice
  friend constexpr bool operator==(const GlaMmaConfig&, const GlaMmaConfig&) = default;

  static constexpr auto axes() {
    using Self = GlaMmaConfig;
    return std::tuple{axis("values", &Self::tile_v, {64, 128}),
                      launch_axis("stages", &Self::stages, {3, 4, 5}),
                      launch_axis("segments", &Self::segments, kSegments)};
  }
};

}  // namespace attune::cuda::gla_mma
