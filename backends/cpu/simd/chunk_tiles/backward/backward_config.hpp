// What may be tuned in the chunked backward kernel on tile registers.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cpu/simd/kernel/isa.hpp"

namespace attune::cpu::simd::chunk_tiles::backward {

struct Config {
  using Op = ops::RecurrentAttentionBackward;
  static constexpr Isa kIsa = Isa::kAmxBf16;  // no other has tile registers
  int chunk = 64;                             // tokens
  int anchor_tokens = 128;  // at least, between two states that gate gradients are summed up from
  int kept_tokens = 1024;   // of the end of a sequence, decayed once for both sweeps, at most
  bool stream = false;      // write gradients past the caches
  int threads = 64;         // at most; a launch never uses more than it has tasks
  friend constexpr bool operator==(const Config&, const Config&) = default;

  static constexpr auto axes() {
    using Self = Config;
    return std::tuple{launch_axis("chunk", &Self::chunk, {32, 64}),
                      launch_axis("anchor_tokens", &Self::anchor_tokens, {64, 128, 256}),
                      launch_axis("kept_tokens", &Self::kept_tokens, {0, 256, 1024, 4096}),
                      launch_axis("stream", &Self::stream, {false, true}),
                      launch_axis("threads", &Self::threads, {1, 2, 4, 8, 16, 32, 64})};
  }
};

}  // namespace attune::cpu::simd::chunk_tiles::backward
