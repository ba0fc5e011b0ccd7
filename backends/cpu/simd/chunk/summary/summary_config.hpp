// What may be tuned in the chunked summary of states.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/state_summary_op.hpp>

#include "cpu/simd/kernel/isa.hpp"

namespace attune::cpu::simd::chunk::summary {

struct Config {
  using Op = ops::StateSummary;
  int chunk = 32;            // tokens handled by one pass over the state
  int tile_v = 256;          // columns of the state in one task; clipped to V
  bool prefetch = true;      // fetch the next chunk's rows during the product
  int threads = 64;          // at most; a launch never uses more than it has tasks
  Isa isa = Isa::kBaseline;  // which of the compiled instruction sets runs
  friend constexpr bool operator==(const Config&, const Config&) = default;

  static constexpr auto axes() {
    using Self = Config;
    return std::tuple{launch_axis("chunk", &Self::chunk, {8, 16, 32}),
                      launch_axis("tile_v", &Self::tile_v, {32, 64, 128, 256}),
                      launch_axis("prefetch", &Self::prefetch, {false, true}),
                      launch_axis("threads", &Self::threads, {1, 2, 4, 8, 16, 32, 64}),
                      launch_axis("isa", &Self::isa, {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512})};
  }
};

}  // namespace attune::cpu::simd::chunk::summary
