// What may be tuned in the kernel of gla_mma.cuh.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda {

struct GlaMmaConfig {
  using Op = ops::RecurrentAttention;
  int values = 128;  // value channels of a block
  int stages = 4;    // chunks of q, k, v and gates in shared memory
  int segments = 1;  // parts a sequence is cut into; all but the last are read twice
  friend constexpr bool operator==(const GlaMmaConfig&, const GlaMmaConfig&) = default;

  static constexpr auto axes() {
    using Self = GlaMmaConfig;
    return std::tuple{axis("values", &Self::values, {64, 128}),
                      launch_axis("stages", &Self::stages, {3, 4, 5}),
                      launch_axis("segments", &Self::segments, {1, 2, 4, 8, 16})};
  }
};

}  // namespace attune::cuda
