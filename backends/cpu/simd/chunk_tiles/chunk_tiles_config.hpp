// What may be tuned in the chunked forward kernel on tile registers.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cpu/simd/kernel/isa.hpp"

namespace attune::cpu::simd::chunk_tiles {

struct Config {
  using Op = ops::RecurrentAttention;
  static constexpr Isa kIsa = Isa::kAmxBf16;  // no other has tile registers
  int chunk = 64;                             // tokens handled by one pass over the state
  int tile_v = 256;                           // columns of the state in one task; clipped to V
  bool prefetch = true;                       // fetch the next chunk's rows during the products
  bool stream = false;                        // write o past the caches
  int threads = 64;                           // at most; a launch never uses more than it has tasks
  friend constexpr bool operator==(const Config&, const Config&) = default;

  static constexpr auto axes() {
    using Self = Config;
    return std::tuple{launch_axis("chunk", &Self::chunk, {32, 64}),
                      launch_axis("tile_v", &Self::tile_v, {32, 64, 128, 256}),
                      launch_axis("prefetch", &Self::prefetch, {false, true}),
                      launch_axis("stream", &Self::stream, {false, true}),
                      launch_axis("threads", &Self::threads, {1, 2, 4, 8, 16, 32, 64})};
  }
};

}  // namespace attune::cpu::simd::chunk_tiles
