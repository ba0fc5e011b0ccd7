// What may be tuned in the recurrent forward kernel.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cpu/simd/kernel/isa.hpp"

namespace attune::cpu::simd::recurrent_attention {

struct Config {
  using Op = ops::RecurrentAttention;
  int tokens_per_pass = 4;   // tokens handled by one pass over the state
  int passes = 4;            // over a few columns of the state, before the next few
  int heads = 8;             // of a sequence that advance together in one task; clipped to H
  int tile_v = 256;          // columns of the state in one task; clipped to V
  bool prefetch = true;      // fetch the rows of the next passes, and the states of the next head
  int prefetch_state = 0;    // how far ahead a state is fetched, in floats, by passes of one token
  bool stream = false;       // write the final state past the caches; never done in place
  int threads = 64;          // at most; a launch never uses more than it has tasks
  Isa isa = Isa::kBaseline;  // which of the compiled instruction sets runs
  friend constexpr bool operator==(const Config&, const Config&) = default;

  static constexpr auto axes() {
    using Self = Config;
    return std::tuple{axis("tokens_per_pass", &Self::tokens_per_pass, kTokensPerPass),
                      launch_axis("passes", &Self::passes, {1, 2, 4}),
                      launch_axis("heads", &Self::heads, {1, 2, 4, 8}),
                      launch_axis("tile_v", &Self::tile_v, {32, 64, 128, 256}),
                      launch_axis("prefetch", &Self::prefetch, {false, true}),
                      launch_axis("prefetch_state", &Self::prefetch_state, {0, 512, 1024}),
                      launch_axis("stream", &Self::stream, {false, true}),
                      launch_axis("threads", &Self::threads, {1, 2, 4, 8, 16, 32, 64}),
                      launch_axis("isa", &Self::isa, {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512})};
  }
};

}  // namespace attune::cpu::simd::recurrent_attention
