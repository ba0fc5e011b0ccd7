// How blocks and their warps share the states of a single token (single_token.cuh).
#pragma once

#include <cstdint>

namespace attune::cuda::window {

inline constexpr int kRowsAtOnce = 8;
inline constexpr int kColumnsOfLane = 2;
inline constexpr int kStrip = kColumnsOfLane * 32;  // columns of a warp
inline constexpr int kMostWarpsOfToken = 16;
inline constexpr int kMostBlocksOfToken = 8;  // of a cluster

/// How the blocks of a cluster share the rows of a head's states, and a block's warps share its own:
/// strips of columns, and groups of rows. Of sums by column, each block adds up some over all
/// blocks.
struct TokenShares {
  int rows = 0, columns = 0, blocks = 1;
  int own_rows = 0, own_columns = 0;  // of a block, the last ones may have fewer
  int strips = 1, groups = 1;

  constexpr TokenShares() = default;
  constexpr TokenShares(int of_rows, int of_columns, int of_blocks)
      : rows(of_rows),
        columns(of_columns),
        blocks(of_blocks),
        own_rows(parts(rows, kRowsAtOnce * blocks) * kRowsAtOnce),
        own_columns(parts(columns, blocks)),
        strips(parts(columns, kStrip)) {
    const int most = own_rows / kRowsAtOnce;
    groups = kMostWarpsOfToken / strips < most ? kMostWarpsOfToken / strips : most;
  }
  constexpr int warps() const { return strips * groups; }
  /// Rows that a warp has one after the other, kRowsAtOnce each.
  constexpr int turns() const { return parts(own_rows, kRowsAtOnce * groups); }
  /// Of shared memory: each side's reads, writes and decays, and shares of three sums each.
  constexpr int floats() const {
    return 3 * (rows + columns) + 3 * (strips * own_rows + groups * columns) + kBlockFloats +
           (blocks > 1 ? 3 * blocks * own_columns : 0);
  }
  static constexpr int kBarrierFloats = 4;  // two barriers
  /// Besides these the gradients of shared gates by warp and by block, and a decay.
  static constexpr int kBlockFloats = kBarrierFloats + kMostWarpsOfToken + kMostBlocksOfToken + 1;

  static constexpr int parts(int count, int of) { return (count + of - 1) / of; }
};

/// Blocks of a cluster on a device of so many multiprocessors, for `walks` heads: as many as leave a
/// warp one turn, but no more than run at once. A cluster is of one group of multiprocessors, which
/// has at least 16 of them.
constexpr int blocks_of_token(int rows, int columns, std::int64_t walks, std::int64_t cores) {
  constexpr std::int64_t kCoresOfGroup = 16;
  const std::int64_t resident = cores / kCoresOfGroup * kCoresOfGroup;
  int blocks = 1;
  while (blocks < kMostBlocksOfToken && TokenShares(rows, columns, blocks).turns() > 1 &&
         2 * blocks * walks <= resident) {
    blocks *= 2;
  }
  return blocks;
}

}  // namespace attune::cuda::window
