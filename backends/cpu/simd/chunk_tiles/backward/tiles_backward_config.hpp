// What may be tuned in the chunked backward kernel on tile registers.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cpu {

struct TilesBackwardConfig {
  using Op = ops::RecurrentAttentionBackward;
  int chunk = 64;           // tokens
  int anchor_tokens = 128;  // at least, between two states that gate gradients are summed up from
  int kept_tokens = 1024;   // of the end of a sequence, decayed once for both sweeps, at most
  bool stream = false;      // write gradients past the caches
  int threads = 64;         // at most; a launch never uses more than it has tasks
  friend constexpr bool operator==(const TilesBackwardConfig&,
                                   const TilesBackwardConfig&) = default;

  static constexpr auto axes() {
    using Self = TilesBackwardConfig;
    return std::tuple{launch_axis("chunk", &Self::chunk, {32, 64}),
                      launch_axis("anchor_tokens", &Self::anchor_tokens, {64, 128, 256}),
                      launch_axis("kept_tokens", &Self::kept_tokens, {0, 256, 1024, 4096}),
                      launch_axis("stream", &Self::stream, {false, true}),
                      launch_axis("threads", &Self::threads, {1, 2, 4, 8, 16, 32, 64})};
  }
};

}  // namespace attune::cpu
