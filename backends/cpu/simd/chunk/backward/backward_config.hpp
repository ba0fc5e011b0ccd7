// What may be tuned in the chunked backward kernel.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cpu/simd/kernel/isa.hpp"

namespace attune::cpu::simd::chunk::backward {

struct Config {
  using Op = ops::RecurrentAttentionBackward;
  int chunk = 16;            // tokens
  int anchor_tokens = 256;   // at least, between two states that gate gradients are summed up from
  int kept_tokens = 512;     // of the end of a sequence, packed once for both sweeps, at most
  bool stream = false;       // write gradients of tokens past the caches
  int group_parts = 1;       // tasks that the query heads of a group are shared by, at most
  int threads = 64;          // at most; a launch never uses more than it has tasks
  Isa isa = Isa::kBaseline;  // which of the compiled instruction sets runs
  friend constexpr bool operator==(const Config&, const Config&) = default;

  static constexpr auto axes() {
    using Self = Config;
    return std::tuple{launch_axis("chunk", &Self::chunk, {16, 32}),
                      launch_axis("anchor_tokens", &Self::anchor_tokens, {32, 64, 128, 256}),
                      launch_axis("kept_tokens", &Self::kept_tokens, {0, 512, 2048}),
                      launch_axis("stream", &Self::stream, {false, true}),
                      launch_axis("group_parts", &Self::group_parts, {1, 2, 4, 8, 16, 32, 64}),
                      launch_axis("threads", &Self::threads, {1, 2, 4, 8, 16, 32, 64}),
                      launch_axis("isa", &Self::isa, {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512})};
  }
};

}  // namespace attune::cpu::simd::chunk::backward
