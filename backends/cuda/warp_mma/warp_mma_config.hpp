// What may be tuned in cuda.warp_mma.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda::warp_mma {

/// Values of the axis `segment`.
inline constexpr int kSegmentTokens[] = {0, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

struct WarpMmaConfig {
  using Op = ops::RecurrentAttention;
  int segment = 0;  // tokens a warp walks; 0: a sequence's. Keys and values of all but the last
                    // segment of a sequence are read twice
  friend constexpr bool operator==(const WarpMmaConfig&, const WarpMmaConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{launch_axis("segment", &WarpMmaConfig::segment, kSegmentTokens)};
  }
};

}  // namespace attune::cuda::warp_mma
