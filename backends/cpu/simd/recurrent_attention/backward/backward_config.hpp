// What may be tuned in the recurrent backward kernel.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cpu/simd/kernel/isa.hpp"

namespace attune::cpu::simd::recurrent_attention::backward {

struct Config {
  using Op = ops::RecurrentAttentionBackward;
  int tokens_per_pass = 4;   // tokens handled by one pass over the state or its gradient
  bool stream = false;       // write gradients past the caches
  int threads = 64;          // at most; a launch never uses more than it has tasks
  Isa isa = Isa::kBaseline;  // which of the compiled instruction sets runs
  friend constexpr bool operator==(const Config&, const Config&) = default;

  static constexpr auto axes() {
    using Self = Config;
    return std::tuple{axis("tokens_per_pass", &Self::tokens_per_pass, kTokensPerPass),
                      launch_axis("stream", &Self::stream, {false, true}),
                      launch_axis("threads", &Self::threads, {1, 2, 4, 8, 16, 32, 64}),
                      launch_axis("isa", &Self::isa, {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512})};
  }
};

}  // namespace attune::cpu::simd::recurrent_attention::backward
