// What may be tuned in the decode kernel.
#pragma once

#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_decode_op.hpp>

namespace attune::cuda::decode {

/// A block takes rows * warp_rows() * warps_k rows of a state at a time, and warp_columns * warps_v
/// of its columns, of which it has no more than threads.
///
/// Loads on their way have their place in the L1 cache, whose memory is the shared memory's too. So
/// shared_kb bounds the bytes under way, by the blocks of a multiprocessor and by what is left to
/// that cache: 60 KB with four blocks of 44, or two of 90. With 28 KB the H200 takes 8 % longer.
struct DecodeConfig {
  using Op = ops::RecurrentDecode;
  int rows = 8;              // of the state that a thread holds in registers, four columns each
  int warp_columns = 32;     // of the state that a warp takes side by side: 128 or 256 bytes
  int warps_k = 4;           // of a block, along K
  int warps_v = 1;           // of a block, along V
  int shared_kb = 0;         // of shared memory that a block has, needed or not
  bool evict_first = false;  // states leave the L2 cache before anything else does
  bool overlap = false;      // starts while the launch before it ends
  friend constexpr bool operator==(const DecodeConfig&, const DecodeConfig&) = default;

  static constexpr auto axes() {
    using Self = DecodeConfig;
    return std::tuple{axis("rows", &Self::rows, {8, 16}),
                      axis("warp_columns", &Self::warp_columns, {32, 64}),
                      launch_axis("warps_k", &Self::warps_k, {1, 2, 4, 8}),
                      launch_axis("warps_v", &Self::warps_v, {1, 2, 4}),
                      launch_axis("shared_kb", &Self::shared_kb, {0, 44, 90}),
                      launch_axis("evict_first", &Self::evict_first, {false, true}),
                      launch_axis("overlap", &Self::overlap, {false, true})};
  }

  constexpr int threads() const { return kWarpThreads * warps_k * warps_v; }
  constexpr int shared_bytes() const { return 1024 * shared_kb; }
  /// Lanes of a warp side by side, and rows of a state that one access of a warp's touches.
  constexpr int lanes_across() const { return warp_columns / kThreadColumns; }
  constexpr int warp_rows() const { return kWarpThreads / lanes_across(); }
  constexpr int tile_rows() const { return warp_rows() * rows * warps_k; }
  constexpr int tile_columns() const { return warp_columns * warps_v; }

  static constexpr int kMaxThreads = 256;
  static constexpr int kResidentBlocks = 2;  // of kMaxThreads on a multiprocessor: 128 registers
  static constexpr int kWarpThreads = 32;
  static constexpr int kThreadColumns = 4;
};

}  // namespace attune::cuda::decode
