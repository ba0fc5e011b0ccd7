// One chunk of a linear recurrence on tile registers, its tensors in whichever roles:
//
//   M_t = a_t M_{t-1} + w_t' x_t        M [reads' channels, columns]
//   y_t = r_t M_t
//
// with the operands of cpu/simd/chunk_tiles: r takes the place of q, w that of k, x that of v. What
// tokens give to one another is in scores; what is left is M as a chunk finds and leaves it.
// Against the sequence rows stay in its order, and what is above the diagonal of scores is what
// counts.
//
// It passes over M once, 32 columns at a time, with all that is not a product between products, as
// cpu/simd/chunk_tiles/work.inl.hpp says.
#pragma once

#include "cpu/simd/chunk_tiles/chunk_tiles.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward {

enum class TokenOrder { kWithSequence, kAgainstSequence };

struct TileRecurrence {
  TokenOrder order = TokenOrder::kWithSequence;
  // Whether M is the transpose of another recurrence's, which rounds it for both and keeps it.
  bool is_transposed = false;
  TileKeys keys;             // the side of r and w
  TileState state;           // M; `pairs` are those of a strip, or of all of a transposed one
  TileMatrix values;         // [4][chunk / 32]: of two strips
  float* outputs = nullptr;  // eight tiles

  std::int64_t width() const { return state.column_tiles * kLanes; }
};

// The rows of a chunk, in the order of the sequence.
struct RecurrenceRows {
  const HalfRows& reads;
  const HalfRows& writes;
  const HalfRows& values;
};

// ---- the state ----

// Factors of the state's columns; null for 1. What a chunk finds has still to decay before it is
// read, or decays once it has been.
struct ChunkDecay {
  const float* before = nullptr;
  const float* after = nullptr;
};

// A strip of the state decayed, and rounded as operands in between, a tile of fp32 at a time: for
// the recurrence, and for that of the transposed state if there is one.
struct StateRounding {
  const TileState* state = nullptr;
  ChunkDecay decay;
  Strip strip;
  TileMatrix transposed;  // [rows / 16][columns / 32], or null

  std::int64_t parts() const { return 2 * state->row_tiles; }

  void run_part(std::int64_t index) const {
    if (decay.before || decay.after) {
      round_tile<true>(index % 2, index / 2);
    } else {
      round_tile<false>(index % 2, index / 2);
    }
  }

 private:
  template <bool kDecays>
  [[gnu::noinline]] void round_tile(std::int64_t half, std::int64_t row_tile) const {
    const std::int64_t column = strip.column + half * kLanes;
    float* const tile = state->floats.at(column / kLanes, row_tile);
    const F32 before = decay.before ? load(decay.before + column) : broadcast(1.0F);
    const F32 after = decay.after ? load(decay.after + column) : broadcast(1.0F);
    F32 x[kTileRows];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      x[i] = load(tile + i * kLanes);
      if constexpr (kDecays) {
        x[i] *= before;
        store(tile + i * kLanes, x[i] * after);
      }
    }
    store_pairs(x, strip.state.at(half, row_tile / 2) + row_tile % 2 * (kTileFloats / 2));
    if (!transposed.data) return;
    transpose(x);
    store_pairs(x, transposed.at(row_tile, column / kTileDepth) + half * (kTileFloats / 2));
  }

  [[gnu::always_inline]] static void store_pairs(const F32 (&x)[kTileRows], float* target) {
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) store(target + i / 2 * kLanes, pair_bf16(x[i], x[i + 1]));
  }
};

// ---- results ----

// What becomes of sums: `Writing` is tile work, `kRows` rows a part, on the block that is put into
// its `results`.
struct RecurrenceResults {
  OutputBlock at;
  const float* tiles = nullptr;
};

// 16 columns of a token in two by two tiles; the next 16 are a tile further.
[[gnu::always_inline]] inline const float* result_row(const float* tiles, std::int64_t t) {
  return tiles + t / kTileRows * 2 * kTileFloats + t % kTileRows * kLanes;
}

// ---- a chunk ----

template <class Writing>
struct RecurrenceChunk {
  const TileRecurrence& of;
  const ChunkSpan& span;
  const HalfRows& values;
  ChunkDecay decay;
  BesideProducts& beside;
  Writing writing;
  TileMatrix transposed = {};  // see StateRounding
  // What `beside` works on besides.
  StateRounding rounding = {};
  ValuePacking packing = {};

  bool is_against() const { return of.order == TokenOrder::kAgainstSequence; }

  Strip strip_at(std::int64_t column) const {
    const std::int64_t turn = column / kTileDepth % 2;
    const std::int64_t tile = of.is_transposed ? column / kLanes : 0;
    return {.column = column,
            .state = {of.state.pairs.at(tile, 0), of.state.pairs.across},
            .values = {of.values.at(2 * turn, 0), of.values.across}};
  }
  // What has to be done before a strip's products. Values take turns in two places, as the strip
  // before needs its own until its end; the state's products are its first.
  TileWork packing_work(std::int64_t column) {
    packing = {.rows = &values, .padded = span.padded, .strip = strip_at(column)};
    return tile_work(packing, packing.parts());
  }
  TileWork rounding_work(std::int64_t column) {
    rounding = {
        .state = &of.state, .decay = decay, .strip = strip_at(column), .transposed = transposed};
    return tile_work(rounding, of.is_transposed ? 0 : rounding.parts());
  }
  void add_first_strip() {
    beside.operands.add(packing_work(0));
    beside.operands.add(rounding_work(0));
  }
  void write(const OutputBlock& at) {
    writing.results = {.at = at, .tiles = of.outputs};
    beside.results.add(tile_work(writing, writing.parts()));
  }
};

// The scores of 32 tokens with all that they read, from `block` on.
struct ScoreTiles {
  std::int64_t first;  // in tiles of 32 tokens, as the next
  std::int64_t count;
};

template <class Writing>
ScoreTiles score_tiles_of(const RecurrenceChunk<Writing>& chunk, std::int64_t block) {
  const std::int64_t half = block / 2;
  if (!chunk.is_against()) return {.first = 0, .count = half + 1};
  return {.first = half, .count = chunk.span.padded / kTileDepth - half};
}

inline TileMatrix tiles_from(const TileMatrix& tiles, std::int64_t column) {
  return {tiles.data + column * kTileFloats, tiles.across};
}

inline BlockTiles output_tiles(float* first) {
  return {{first, first + kTileFloats, first + 2 * kTileFloats, first + 3 * kTileFloats}};
}

// r M + P x.
template <class Writing>
[[gnu::noinline]] void multiply_joined(RecurrenceChunk<Writing>& chunk, const Strip& strip,
                                       std::int64_t block) {
  const TileKeys& keys = chunk.of.keys;
  const ScoreTiles tiles = score_tiles_of(chunk, block);
  zero_block<2>();
  add_block_beside(keys.queries, block, strip.state, 0, keys.depth(), chunk.beside);
  add_block_beside(tiles_from(keys.scores, tiles.first), block,
                   tiles_from(strip.values, tiles.first), 0, tiles.count, chunk.beside);
  chunk.beside.results.run_all();
  store_block<2>(output_tiles(chunk.of.outputs));
}

// r M, and behind it P x.
template <class Writing>
[[gnu::noinline]] void multiply_separately(RecurrenceChunk<Writing>& chunk, const Strip& strip,
                                           std::int64_t block) {
  const TileKeys& keys = chunk.of.keys;
  const ScoreTiles tiles = score_tiles_of(chunk, block);
  zero_block<2>();
  add_block_beside(keys.queries, block, strip.state, 0, keys.depth(), chunk.beside);
  chunk.beside.results.run_all();
  store_block<2>(output_tiles(chunk.of.outputs));
  zero_block<2>();
  add_block_beside(tiles_from(keys.scores, tiles.first), block,
                   tiles_from(strip.values, tiles.first), 0, tiles.count, chunk.beside);
  store_block<2>(output_tiles(chunk.of.outputs + 4 * kTileFloats));
}

// 32 rows at a time.
template <class Writing>
void multiply_results(RecurrenceChunk<Writing>& chunk, const Strip& strip) {
  const std::int64_t blocks = chunk.span.blocks();
  for (std::int64_t i = 0; i < blocks; i += 2) {
    const std::int64_t block = chunk.is_against() ? blocks - 2 - i : i;
    if constexpr (Writing::kSeparate) {
      multiply_separately(chunk, strip, block);
    } else {
      multiply_joined(chunk, strip, block);
    }
    chunk.write({.token = block * kTileRows, .column = strip.column});
  }
}

template <class Writing>
[[gnu::noinline]] void update_columns(RecurrenceChunk<Writing>& chunk, const Strip& strip) {
  const TileState& state = chunk.of.state;
  const std::int64_t tile = strip.column / kLanes;
  for (std::int64_t row = 0; row < state.row_tiles; row += 2) {
    const BlockTiles at{{state.floats.at(tile, row), state.floats.at(tile + 1, row),
                         state.floats.at(tile, row + 1), state.floats.at(tile + 1, row + 1)}};
    load_block(at);
    add_block_beside(chunk.of.keys.writes, row, strip.values, 0, chunk.span.padded / kTileDepth,
                     chunk.beside);
    chunk.beside.results.run_all();
    store_block<2>(at);
  }
}

// Scores, reads and writes are packed; the operands of the first strip are, or wait to be.
template <class Writing>
void run_recurrence(RecurrenceChunk<Writing>& chunk) {
  BesideProducts& beside = chunk.beside;
  for (std::int64_t column = 0; column < chunk.of.width(); column += kTileDepth) {
    beside.operands.run_all();
    const std::int64_t next = column + kTileDepth;
    const bool has_next = next < chunk.of.width();
    if (has_next) beside.operands.add(chunk.packing_work(next));
    const Strip strip = chunk.strip_at(column);
    multiply_results(chunk, strip);
    if (has_next) beside.operands.add(chunk.rounding_work(next));
    if (!chunk.of.is_transposed) update_columns(chunk, strip);
  }
  beside.results.run_all();
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward
