// The walk of walks/walk.hpp in chunks of 16 tokens, on tensor cores.
//
// Within a chunk, with G_i the sum of a row's log decays from the chunk's start to its token i, and
// S the state before it,
//
//   out_i = sum_r read_i[r] 2^G_i[r] S[r, :] + sum_{j <= i} P[i, j] value_j
//   P[i, j] = sum_r (read_i[r] 2^G_i[r]) (write_j[r] 2^-G_j[r])
//   S after it = 2^G_last[r] (S + sum_j (write_j[r] 2^-G_j[r]) value_j)
//
// and so for columns with a gate: value_j 2^-G_j before, out_i 2^G_i after. Decays that all
// channels share belong to the rows. All products are of 16 x 8 x 8 with operands in TF32, 10 bits
// of mantissa and the exponents of fp32: 16-bit elements are exact in it, f32 takes three products
// of a high and a low part each. The state is added to outside of the tensor cores, which truncate.
//
// No exponent is larger than kMostDecay in magnitude. A chunk of stronger decays, with a reset
// (-inf) or with a NaN among them is walked token by token instead, by the same warps.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/walks/walk.hpp"

namespace attune::cuda::chunk_tf32 {

inline constexpr int kChunk = 16;
inline constexpr int kColumnsPerWarp = 16;
/// In base 2, for rows and for columns: products of both stay far from what fp32 can hold.
inline constexpr float kMostDecay = 44.0F;

/// A block's tile of a state.
struct WalkTile {
  int rows = 64;
  int column_warps = 4;

  constexpr int columns() const { return column_warps * kColumnsPerWarp; }
  constexpr int state_threads() const { return column_warps * 32; }
  /// A thread a row and one a column bring tokens to shared memory.
  constexpr int staging_threads() const { return (rows + columns() + 31) / 32 * 32; }
  constexpr int threads() const { return state_threads() + staging_threads(); }
  /// Parts that the warps sum scores in.
  constexpr int score_parts() const { return column_warps > 1 ? column_warps / 2 : 1; }
  friend constexpr bool operator==(const WalkTile&, const WalkTile&) = default;
};

constexpr std::int64_t row_blocks(const WalkTile& tile, std::int64_t rows) {
  return ceil_div(rows, tile.rows);
}
constexpr std::int64_t column_blocks(const WalkTile& tile, std::int64_t columns) {
  return ceil_div(columns, tile.columns());
}
constexpr std::int64_t tile_count(const WalkTile& tile, std::int64_t rows, std::int64_t columns) {
  return row_blocks(tile, rows) * column_blocks(tile, columns);
}

/// Offsets in floats within one of two buffers. Tokens are padded so that what the lanes of a warp
/// read lies in different banks. Planes of rows come first: where they lie is known to the
/// compiler.
template <int kRows, int kParts>
struct RowLayout {
  static constexpr int kReadStride = kRows + 8;  // from token to token
  static constexpr int kWriteStride = kRows + 4;
  static constexpr int kFlags = 0;                     // nonzero: the chunk goes token by token
  static constexpr int kRowTotal = 4;                  // 2^G_last: {high, low} a row
  static constexpr int kRead = kRowTotal + 2 * kRows;  // scaled; as they are where token by token
  static constexpr int kReadLow = kRead + kChunk * kReadStride;
  static constexpr int kWrite = kReadLow + (kParts > 1 ? kChunk * kReadStride : 0);
  static constexpr int kWriteLow = kWrite + kChunk * kWriteStride;  // or the decays of each token,
                                                                    // low parts in kReadLow
  static constexpr int kEnd = kWriteLow + kChunk * kWriteStride;
};

/// Behind them, by the tile's columns.
struct ColumnLayout {
  int stride = 0;  // from token to token
  int total = 0;   // {high, low} a column
  int value = 0;
  int value_low = 0;  // or low parts of each token's decays
  int factor = 0;     // 2^G_i, or each token's decays
  int end = 0;
};
constexpr ColumnLayout column_layout(int begin, int columns, int parts, bool gates) {
  ColumnLayout at;
  at.stride = columns + 4;
  at.total = begin;
  at.value = at.total + 2 * columns;
  at.value_low = at.value + kChunk * at.stride;
  at.factor = at.value_low + (parts > 1 ? kChunk * at.stride : 0);
  at.end = at.factor + (gates ? kChunk * at.stride : 0);
  return at;
}

inline constexpr int kScoreStride = 24;  // from token to token
inline constexpr int kScoreFloats = kChunk * kScoreStride;

/// Shared memory of a block.
constexpr std::size_t shared_bytes(const WalkTile& tile, int parts, bool column_gates) {
  const int rows_end =
      4 + 2 * tile.rows + parts * kChunk * (tile.rows + 8) + 2 * kChunk * (tile.rows + 4);
  const int floats = column_layout(rows_end, tile.columns(), parts, column_gates).end;
  return 2 * sizeof(float) * static_cast<std::size_t>(floats + tile.score_parts() * kScoreFloats);
}
static_assert(RowLayout<64, 2>::kEnd == 4 + 128 + 2 * kChunk * 72 + 2 * kChunk * 68);

/// Rows of a tile that there are instances for.
inline constexpr int kTileRows[] = {32, 64, 128};
inline constexpr int kMaxThreads = 512;

/// Queues the walk for an element type: float, __half or __nv_bfloat16. `parts`: 2 for three
/// products of high and low parts in place of one.
template <class T>
void launch_chunk_walk(const WalkTile& tile, int parts, const WalkParams& params,
                       cudaStream_t stream);

}  // namespace attune::cuda::chunk_tf32
