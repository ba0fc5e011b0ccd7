// What may be tuned in the decode kernel.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_decode_op.hpp>

#include "cpu/simd/kernel/isa.hpp"

namespace attune::cpu::simd::decode {

struct Config {
  using Op = ops::RecurrentDecode;
  int tile_v = 256;          // columns of the state in one task; clipped to V
  int prefetch = 512;        // how far ahead the state is fetched, in floats; 0 for not at all
  int threads = 64;          // at most; a launch never uses more than it has tasks
  Isa isa = Isa::kBaseline;  // which of the compiled instruction sets runs
  friend constexpr bool operator==(const Config&, const Config&) = default;

  static constexpr auto axes() {
    using Self = Config;
    return std::tuple{launch_axis("tile_v", &Self::tile_v, {32, 64, 128, 256}),
                      launch_axis("prefetch", &Self::prefetch, {0, 512, 1024}),
                      launch_axis("threads", &Self::threads, {1, 2, 4, 8, 16, 32, 64}),
                      launch_axis("isa", &Self::isa, {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512})};
  }
};

}  // namespace attune::cpu::simd::decode
