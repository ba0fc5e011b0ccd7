// The walk of walks/walk.hpp token by token, with the state in registers.
//
// Sums over tokens are exact in fp32, with no decay but that of one token at a time: there is
// nothing that could overflow, and a decay of -inf resets the state exactly.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/walks/walk.hpp"

namespace attune::cuda::fused_recurrent {

// How a warp holds its tile of the state: 4 lanes along the rows, 8 along the columns.
inline constexpr int kRowLanes = 4;
inline constexpr int kColumnLanes = 8;
inline constexpr int kColumnsPerLane = 4;
inline constexpr int kColumnsPerWarp = kColumnLanes * kColumnsPerLane;

/// Warps of a block that hold no state: they stage tokens and write what was read. One half stages
/// what is written and read, the other values and decays, so that all loads are in flight together.
inline constexpr int kStagingWarps = 4;

/// State warps that a block may have. With 32 rows a lane the state alone takes 128 registers.
constexpr int max_state_warps(int rows_per_lane) { return rows_per_lane > 16 ? 4 : 8; }

/// The tunable sizes of a walk.
struct WalkShape {
  int rows_per_lane = 16;
  int row_warps = 2;
  int column_warps = 2;
  int tokens = 8;  // staged at a time

  constexpr int rows() const { return rows_per_lane * kRowLanes * row_warps; }  // of a block
  constexpr int columns() const { return kColumnsPerWarp * column_warps; }
  constexpr int state_warps() const { return row_warps * column_warps; }
  friend constexpr bool operator==(const WalkShape&, const WalkShape&) = default;
};

/// Blocks that the rows of a state are spread over. Where there are several, `out` is the sum of
/// planes.
constexpr std::int64_t row_blocks(const WalkShape& shape, std::int64_t rows) {
  return ceil_div(rows, shape.rows());
}
constexpr std::int64_t column_blocks(const WalkShape& shape, std::int64_t columns) {
  return ceil_div(columns, shape.columns());
}
/// Floats of one checkpoint's states, of all heads.
constexpr std::int64_t checkpoint_floats(const WalkShape& shape, std::int64_t heads,
                                         std::int64_t rows, std::int64_t columns) {
  return heads * row_blocks(shape, rows) * column_blocks(shape, columns) * shape.rows() *
         shape.columns();
}

/// Gates that differ from channel to channel; a walk is compiled for each set of them.
enum ChannelGates : int { kRowGates = 1, kColumnGates = 2 };
inline constexpr int kGateSets[] = {0, kRowGates, kColumnGates, kRowGates | kColumnGates};

/// Offsets in floats, each a multiple of four, in one of two buffers. Rows and columns are a
/// block's, padded with zeros.
struct StageLayout {
  int pairs = 0;          // [tokens, rows] of {write, read}
  int values = 0;         // [tokens, columns]
  int shared_decays = 0;  // [tokens] of DecayFactor, where no gate differs between channels
  int row_decays = 0;     // [parts, tokens, rows]
  int column_decays = 0;  // [parts, tokens, columns]
  int sums = 0;           // [tokens, row warps, row lanes, columns]: partial sums of what was read
  int floats = 0;
};

/// Decays are staged as factors: their high parts and, when `exact`, their low parts. Where rows
/// and columns both have gates, logarithms are staged, as only their sum has an exponential.
constexpr int decay_parts(int gates, bool exact) {
  return exact && gates != (kRowGates | kColumnGates) ? 2 : 1;
}

constexpr StageLayout stage_layout(const WalkShape& shape, int gates, bool exact) {
  StageLayout at;
  const auto take = [&at](int floats) {
    const int offset = at.floats;
    at.floats += (floats + 3) / 4 * 4;
    return offset;
  };
  const int parts = decay_parts(gates, exact) * shape.tokens;
  at.pairs = take(shape.tokens * shape.rows() * 2);
  at.values = take(shape.tokens * shape.columns());
  at.shared_decays = take(gates == 0 ? shape.tokens * 2 : 0);
  at.row_decays = take((gates & kRowGates) != 0 ? parts * shape.rows() : 0);
  at.column_decays = take((gates & kColumnGates) != 0 ? parts * shape.columns() : 0);
  at.sums = take(shape.tokens * shape.row_warps * kRowLanes * shape.columns());
  return at;
}

/// Shared memory for what a block works on.
inline constexpr std::size_t kWorkBytes = 256;

/// Shared memory of a block: while one buffer is walked over, the other is staged.
constexpr std::size_t walk_shared_bytes(const WalkShape& shape, int gates, bool exact) {
  const auto floats = static_cast<std::size_t>(stage_layout(shape, gates, exact).floats);
  return kWorkBytes + 2 * sizeof(float) * floats;
}

/// Queues the walk for an element type: float, __half or __nv_bfloat16.
template <class T>
void launch_walk(const WalkShape& shape, const WalkParams& params, cudaStream_t stream);

}  // namespace attune::cuda::fused_recurrent
