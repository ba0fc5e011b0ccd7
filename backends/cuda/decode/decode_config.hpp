// What may be tuned in the decode kernel.
#pragma once

#include <cstddef>
#include <tuple>

#include <attune/core/config_axes.hpp>
#include <attune/ops/recurrent_decode_op.hpp>

namespace attune::cuda::decode {

/// A block takes rows * warp_rows() * warps_k rows of a state at a time, and warp_columns * warps_v
/// of its columns, of which it has no more than threads. How many columns a thread has side by side
/// is not tuned: see thread_columns(). A block has more than shared_kb where its tokens need it.
///
/// Loads on their way have their place in the L1 cache, whose memory is the shared memory's too. So
/// shared_kb bounds the bytes under way, by the blocks of a multiprocessor and by what is left to
/// that cache: 60 KB with four blocks of 44, or two of 90. With 28 KB the H200 takes 8 % longer.
struct DecodeConfig {
  using Op = ops::RecurrentDecode;
  int rows = 8;              // of the state that a thread holds in registers
  int warp_columns = 32;     // of the state that a warp takes side by side
  int warps_k = 4;           // of a block, along K
  int warps_v = 1;           // of a block, along V
  int shared_kb = 0;         // of shared memory that a block has, needed or not
  bool evict_first = false;  // states leave the L2 cache before anything else does
  bool overlap = false;      // starts while the launch before it ends
  friend constexpr bool operator==(const DecodeConfig&, const DecodeConfig&) = default;

  static constexpr auto axes() {
    using Self = DecodeConfig;
    return std::tuple{axis("rows", &Self::rows, {8, 16}),
                      axis("warp_columns", &Self::warp_columns, {32, 64, 128}),
                      launch_axis("warps_k", &Self::warps_k, {1, 2, 4, 8}),
                      launch_axis("warps_v", &Self::warps_v, {1, 2, 4}),
                      launch_axis("shared_kb", &Self::shared_kb, {0, 44, 90}),
                      launch_axis("evict_first", &Self::evict_first, {false, true}),
                      launch_axis("overlap", &Self::overlap, {false, true})};
  }

  constexpr int threads() const { return kWarpThreads * warps_k * warps_v; }
  constexpr int shared_bytes() const { return 1024 * shared_kb; }
  /// Lanes of a warp side by side, and rows of a state that one access of a warp's touches, where a
  /// thread has `columns`.
  constexpr int lanes_across(int columns) const { return warp_columns / columns; }
  constexpr int warp_rows(int columns) const { return kWarpThreads / lanes_across(columns); }
  constexpr int tile_rows(int columns) const { return warp_rows(columns) * rows * warps_k; }
  constexpr int tile_columns() const { return warp_columns * warps_v; }

  static constexpr int kMaxThreads = 256;
  static constexpr int kResidentBlocks = 2;  // of kMaxThreads on a multiprocessor: 128 registers
  static constexpr int kWarpThreads = 32;

  /// Whether the kernel of one token has a tile of the config's for threads of `columns`: a warp's
  /// lines of 16-bit elements are whole ones.
  static constexpr bool has_tile(const DecodeConfig& c, int columns) {
    return columns == thread_columns(sizeof(float)) ? c.warp_columns <= kStepWarpColumns
                                                    : c.warp_columns == kStepWarpColumns;
  }

  static constexpr int kVectorBytes = 16;
  /// One vector of elements of so many bytes, where a step is one token a row.
  static constexpr int thread_columns(std::size_t state_bytes) {
    return kVectorBytes / static_cast<int>(state_bytes);
  }
  /// What the kernel of any step has: a vector of 16-bit elements or two of f32, and so many rows
  /// of them, as 64 elements stay in registers through all tokens.
  static constexpr int kStepColumns = 8;
  static constexpr int kStepRows = 8;
  static constexpr int kStepWarpColumns = 64;
  /// What products on tensor cores take: a row's tokens of each kind, and a block's rows, columns
  /// and threads.
  static constexpr int kProductTokens = 8;
  static constexpr int kProductRows = 128;
  static constexpr int kProductColumns = 128;
  static constexpr int kProductThreads = 128;
  /// Eight lanes side by side, four rows an access.
  constexpr int product_rows() const { return 4 * rows * warps_k; }
  /// Of its shared memory, with all tokens of a row staged: T, and R committed ones.
  static constexpr int step_shared_bytes(int tile_rows, int tile_columns, int warps_k, int tokens,
                                         int committed, bool value_gate) {
    constexpr int kKeyFloats = 4;
    const int of_token = kKeyFloats * tile_rows + (value_gate ? 2 : 1) * tile_columns;
    const int sums = tokens * warps_k * tile_columns;
    return static_cast<int>(sizeof(float)) * ((tokens + committed) * of_token + sums);
  }
};

}  // namespace attune::cuda::decode
