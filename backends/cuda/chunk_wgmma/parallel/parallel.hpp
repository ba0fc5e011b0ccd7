// The parallel form on wgmma and TMA (sm_90a), for sequences of a few chunks: no state passes from
// chunk to chunk. A block makes the outputs of one chunk or two from all tokens up to them,
//
//   o_i = scale (q_i S_0 2^(b_i) + sum over j <= i of (q_i . k_j) 2^(b_i - b_j) v_j)
//
// with b the sum of log2 decays. Work grows with the square of the length, but every chunk begins at
// once. Final states are sums of all tokens, by segment_states.cuh beside it and a join behind it.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>

#include "cuda/wgmma_walk/walk.hpp"

namespace attune::cuda::chunk_wgmma {

struct ParallelWgmmaConfig {
  using Op = ops::RecurrentAttention;
  int tile_k = 128;  // key channels of a block: all of them, those past K are zeros
  int tile_v = 128;  // value channels of a block
  int chunks = 1;    // of outputs of a block
  friend constexpr bool operator==(const ParallelWgmmaConfig&,
                                   const ParallelWgmmaConfig&) = default;

  static constexpr auto axes() {
    return std::tuple{axis("tile_k", &ParallelWgmmaConfig::tile_k, {64, 128, 256}),
                      axis("tile_v", &ParallelWgmmaConfig::tile_v, {64, 128}),
                      axis("chunks", &ParallelWgmmaConfig::chunks, {1, 2})};
  }
  /// Few blocks are narrow and many make two chunks; what else there could be gains a hundredth, on
  /// average.
  static constexpr bool compiles(const ParallelWgmmaConfig& c) {
    if (c.tile_v == 64) return c.chunks == 1;
    return c.chunks == 2 || c.tile_k == 128;
  }
};

struct ParallelParams {
  WalkParams walk;      // in one segment
  unsigned slots = 0;   // of a block's chunks, of one head: as chunk_slots() of chunks
  unsigned blocks = 0;  // of all heads and value tiles
};

template <class T>
void launch_parallel(const ParallelWgmmaConfig& config, const ParallelParams& params,
                     cudaStream_t stream);

}  // namespace attune::cuda::chunk_wgmma
