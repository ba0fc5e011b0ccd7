// What may be tuned of the chunked walk on wgmma.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda::chunk_wgmma {

struct ChunkWgmmaConfig {
  using Op = ops::RecurrentAttention;
  int tile_k = 128;  // key channels of a block: all of them, those past K are zeros
  int tile_v = 128;  // value channels of a block; 64 of them to a warpgroup
  int stages = 4;    // chunks of q and k on the way or in use: walks have most_stages()
  int segments = 1;  // of a sequence, walked at the same time
  friend constexpr bool operator==(const ChunkWgmmaConfig&, const ChunkWgmmaConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{axis("tile_k", &ChunkWgmmaConfig::tile_k, {64, 128, 192, 256}),
                      axis("tile_v", &ChunkWgmmaConfig::tile_v, {64, 128}),
                      axis("stages", &ChunkWgmmaConfig::stages, {2, 3, 4}),
                      launch_axis("segments", &ChunkWgmmaConfig::segments, {1, 2, 4, 8, 16, 32})};
  }
  /// As many as shared memory holds, whatever a config says: one less gains nothing, but databases
  /// have it.
  constexpr int most_stages() const { return is_widest() ? 2 : tile_k > 128 ? 3 : 4; }
  static constexpr bool compiles(const ChunkWgmmaConfig& c) {
    if (c.tile_k == 256) return c.is_widest() ? c.stages == 2 : c.stages <= 3;
    if (c.tile_k == 192) return c.stages == 3;
    return c.stages >= 3;
  }
  /// The one with as many stages as there are instances for.
  constexpr ChunkWgmmaConfig instance() const {
    ChunkWgmmaConfig config = *this;
    config.stages = most_stages();
    return config;
  }
  constexpr bool is_instance() const { return *this == instance(); }
  /// The widest states leave no registers for more than outputs.
  constexpr bool is_widest() const { return tile_k == 256 && tile_v == 128; }
  /// Of the walk before that of the outputs, which makes what segments add to states.
  constexpr ChunkWgmmaConfig of_sums() const {
    ChunkWgmmaConfig config = *this;
    if (is_widest()) config.tile_v = 64;
    return config.instance();
  }
};

}  // namespace attune::cuda::chunk_wgmma
