// The state of a task in tiles: fp32, [columns / 16][rows / 16], and rounded, as the pairs of bf16
// that products take, [columns / 16][rows / 32].
#pragma once

#include "cpu/simd/recurrent_attention/state_blocks.inl.hpp"
#include "tile_operands.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

struct TileState {
  TileMatrix floats;
  TileMatrix pairs;
  std::int64_t rows = 0;     // K
  std::int64_t columns = 0;  // of the task
  std::int64_t row_tiles = 0;
  std::int64_t column_tiles = 0;
};

// ---- between the caller's layout and tiles ----

// What a tile covers of a caller's state.
struct StatePart {
  std::int64_t row, column;
  std::int64_t rows, columns;  // that exist, at most 16

  bool is_whole() const { return rows == kTileRows && columns == kLanes; }
};

inline StatePart part_of(const TileState& state, std::int64_t column_tile, std::int64_t row_tile) {
  const auto limited = [](std::int64_t left) { return left < 0 ? 0 : left < 16 ? left : 16; };
  const std::int64_t row = row_tile * kTileRows;
  const std::int64_t column = column_tile * kLanes;
  return {.row = row,
          .column = column,
          .rows = limited(state.rows - row),
          .columns = limited(state.columns - column)};
}

// Whether tiles may be read where a caller has them: rows are contiguous and all of them exist.
inline bool lies_in_tiles(const TileState& state, const StateView<const float*>& from) {
  return from.data && from.value_stride == 1 && state.rows == state.row_tiles * kTileRows &&
         state.columns == state.column_tiles * kLanes;
}

[[gnu::always_inline]] inline const float* tile_of(const StateView<const float*>& from,
                                                   std::int64_t column_tile,
                                                   std::int64_t row_tile) {
  return from.data + row_tile * kTileRows * from.key_stride + column_tile * kLanes;
}

[[gnu::noinline]] inline void read_state_tile(const StateView<const float*>& from,
                                              const StatePart& part, float* tile) {
  const float* const source =
      from.data + part.row * from.key_stride + part.column * from.value_stride;
  F32 x[16];
  if (part.is_whole() && from.value_stride == 1) {
    for (int i = 0; i < 16; ++i) x[i] = load(source + i * from.key_stride);
  } else if (part.is_whole() && from.key_stride == 1) {
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) x[j] = load(source + j * from.value_stride);
    transpose(x);
  } else {
    for (int i = 0; i < 16; ++i) {
      x[i] = F32{};
      if (i >= part.rows) continue;
      for (std::int64_t j = 0; j < part.columns; ++j) {
        x[i][j] = source[i * from.key_stride + j * from.value_stride];
      }
    }
  }
  store_rows(tile, x);
}

// With factors of its rows, from `factors` on, or null.
[[gnu::noinline]] inline void write_state_tile(const StateView<float*>& to, const StatePart& part,
                                               const float* tile, const float* factors = nullptr) {
  float* const target = to.data + part.row * to.key_stride + part.column * to.value_stride;
  const auto row = [&](std::int64_t i) {
    const F32 x = load(tile + i * kLanes);
    return factors ? x * factors[i] : x;
  };
  if (part.is_whole() && to.value_stride == 1) {
    for (int i = 0; i < 16; ++i) store(target + i * to.key_stride, row(i));
  } else if (part.is_whole() && to.key_stride == 1) {
    F32 x[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) x[i] = row(i);
    transpose(x);
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) store(target + j * to.value_stride, x[j]);
  } else {
    for (std::int64_t i = 0; i < part.rows; ++i) {
      const F32 x = row(i);
      for (std::int64_t j = 0; j < part.columns; ++j) {
        target[i * to.key_stride + j * to.value_stride] = x[j];
      }
    }
  }
}

inline void read_floats(const TileState& state, const StateView<const float*>& from) {
  for (std::int64_t column = 0; column < state.column_tiles; ++column) {
    for (std::int64_t row = 0; row < state.row_tiles; ++row) {
      StatePart part = part_of(state, column, row);
      if (!from.data) part.rows = 0;
      read_state_tile(from, part, state.floats.at(column, row));
    }
  }
}

inline void write_state(const TileState& state, const StateView<float*>& to) {
  if (!to.data) return;
  for (std::int64_t column = 0; column < state.column_tiles; ++column) {
    for (std::int64_t row = 0; row < state.row_tiles; ++row) {
      write_state_tile(to, part_of(state, column, row), state.floats.at(column, row));
    }
  }
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
