// The state of a task in tiles: fp32, [columns / 16][rows / 16], and rounded, as the pairs of bf16
// that products take, [columns / 16][rows / 32].
#pragma once

#include "cpu/simd/vector/rows.inl.hpp"
#include "cpu/simd/vector/state.inl.hpp"
#include "operands.inl.hpp"
#include "values.inl.hpp"
#include "work.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

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

// ---- strips of 32 columns ----
//
// What a chunk does with 32 columns of the state and of v, a strip, beside the products: their
// operands. Rows of o are those of outputs.inl.hpp.
//
// A strip is rounded to bf16 just before it is read, which brings its fp32 into the first-level
// cache for when the chunk is added to it.

// Factors of the state's rows and columns; null for 1. `before` are taken before it is read.
struct StripDecay {
  const float* before = nullptr;
  const float* rows = nullptr;
  const float* columns = nullptr;

  bool any() const { return before || rows || columns; }
};

// Operands of 32 columns from `column` of the task on.
struct Strip {
  std::int64_t column = 0;
  TileMatrix state;   // [2][K / 32]
  TileMatrix values;  // [2][chunk / 32]
};

// The state rounded, a tile of fp32 at a time. It decays as well; before the first chunk it is
// read, where it lies or into its tiles.
struct StripRounding {
  const TileState* state = nullptr;
  const StateView<const float*>* initial = nullptr;  // null behind the first chunk
  bool in_place = false;                             // whether it does not become tiles
  StripDecay decay;
  Strip strip;

  std::int64_t parts() const { return 2 * state->row_tiles; }

  void run_part(std::int64_t index) const {
    const std::int64_t half = index % 2;
    const std::int64_t row_tile = index / 2;
    const std::int64_t column_tile = strip.column / kLanes + half;
    if (in_place) {
      const float* const rows = tile_of(*initial, column_tile, row_tile);
      return round_rows<false>(rows, initial->key_stride, target(half, row_tile));
    }
    if (initial) read_tile(column_tile, row_tile);
    float* const tile = state->floats.at(column_tile, row_tile);
    if (decay.any()) {
      return decay_tile(tile, half, row_tile);
    }
    round_rows<true>(tile, kLanes, target(half, row_tile));
  }

 private:
  void read_tile(std::int64_t column_tile, std::int64_t row_tile) const {
    StatePart part = part_of(*state, column_tile, row_tile);
    if (!initial->data) part.rows = 0;
    read_state_tile(*initial, part, state->floats.at(column_tile, row_tile));
  }

  float* target(std::int64_t half, std::int64_t row_tile) const {
    return strip.state.at(half, row_tile / 2) + row_tile % 2 * (kTileFloats / 2);
  }

  // With kIsTile the step is kLanes, which addresses of rows then are made with.
  template <bool kIsTile>
  [[gnu::noinline]] static void round_rows(const float* rows, std::int64_t row_step, float* to) {
    const std::int64_t step = kIsTile ? kLanes : row_step;
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < kTileRows; i += 2) {
      store(to + i / 2 * kLanes, pair_bf16(load(rows + i * step), load(rows + (i + 1) * step)));
    }
  }

  [[gnu::noinline]] void decay_tile(float* tile, std::int64_t half, std::int64_t row_tile) const {
    const std::int64_t column = strip.column + half * kLanes;
    const std::int64_t row = row_tile * kTileRows;
    float* const to = target(half, row_tile);
    const F32 of_column = decay.columns ? load(decay.columns + column) : broadcast(1.0F);
    const auto decayed = [&](std::int64_t i) {
      F32 value = load(tile + i * kLanes);
      if (decay.before) value *= decay.before[row + i];
      store(tile + i * kLanes, value * (decay.rows ? of_column * decay.rows[row + i] : of_column));
      return value;
    };
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < kTileRows; i += 2) {
      store(to + i / 2 * kLanes, pair_bf16(decayed(i), decayed(i + 1)));
    }
  }
};

// Two by two tiles of the state, when the last chunk was added, to where the caller wants them.
struct StateWriting {
  const TileState* state = nullptr;
  const StateView<float*>* final = nullptr;
  BlockTiles tiles = {};
  const float* pending = nullptr;  // decays of rows that it has not taken yet, or null
  std::int64_t column_tile = 0;
  std::int64_t row_tile = 0;

  static constexpr std::int64_t kParts = 4;

  [[gnu::noinline]] void run_part(std::int64_t index) const {
    const std::int64_t column = column_tile + index % 2;
    const std::int64_t row = row_tile + index / 2;
    write_state_tile(*final, part_of(*state, column, row), tiles.tile[index],
                     pending ? pending + row * kTileRows : nullptr);
  }
};

// Rows of bf16 times finite factors. Rounded with ties away from zero, which takes two thirds of
// the time: a NaN of bf16 stays one.
struct FactoredRows {
  const HalfRows& rows;
  const float* factors;

  [[gnu::always_inline]] F32 pair(std::int64_t t, std::int64_t i) const {
    const U32 first = as_bits(rows.vector(t, i) * factors[t]) + 0x8000U;
    const U32 second = as_bits(rows.vector(t + 1, i) * factors[t + 1]) + 0x8000U;
    return as_f32(first >> 16 | (second & 0xffff0000U));
  }
};

// Values of the tokens of a chunk, 16 tokens and columns at a time.
struct ValuePacking {
  const HalfRows* rows = nullptr;  // null where values are ready
  const float* factors = nullptr;  // of rows; null for 1
  std::int64_t padded = 0;
  Strip strip;

  std::int64_t parts() const { return rows ? padded / kTileRows * 2 : 0; }

  [[gnu::noinline]] void run_part(std::int64_t index) const {
    if (factors) return pack_part(FactoredRows{*rows, factors}, index);
    pack_part(*rows, index);
  }

 private:
  template <class Source>
  [[gnu::always_inline]] void pack_part(const Source& source, std::int64_t index) const {
    const std::int64_t half = index % 2;
    const std::int64_t token = index / 2 * kTileRows;
    float* const target =
        strip.values.at(half, token / kTileDepth) + token % kTileDepth / 2 * kLanes;
#pragma GCC unroll 8
    for (std::int64_t t = 0; t < kTileRows; t += 2) {
      store(target + t / 2 * kLanes, source.pair(token + t, strip.column + half * kLanes));
    }
  }
};

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles
