// One chunk of a linear recurrence on tile registers, its tensors in whichever roles:
//
//   M_t = a_t M_{t-1} + w_t' x_t        M [reads' channels, columns]
//   y_t = r_t M_t
//
// with the operands of cpu/simd/chunk_tiles: r takes the place of q, w that of k, x that of v. What
// tokens give to one another is in pairs; what is left is M as a chunk finds and leaves it.
//
// Products and what is done with their results take turns: a result's last sums are not waited for,
// and a product reads what was written some products before.
#pragma once

#include "cpu/simd/chunk_tiles/chunk_tiles.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

struct TileRecurrence {
  TileKeys keys;      // the side of r and w
  TileState state;    // M
  TileMatrix values;  // [columns / 16][chunk / 32]

  std::int64_t width() const { return state.column_tiles * kLanes; }
};

// The rows of a chunk, in the order of the recurrence.
struct RecurrenceRows {
  const HalfRows& reads;
  const HalfRows& writes;
  const HalfRows& values;
};

inline void pack_values(const TileRecurrence& of, const ChunkSpan& span, const HalfRows& values) {
  for (std::int64_t t = 0; t < span.padded; t += kTileDepth) {
    pack_columns(values, t, kTileDepth, of.width(), of.values);
  }
}

// ---- the state ----

// What a chunk finds has still to decay before it is read, or decays once it has been.
struct ChunkDecay {
  StateDecay before = {};
  StateDecay after = {};
};

[[gnu::always_inline]] inline F32 decay_of_row(const StateDecay& decay, std::int64_t row,
                                               F32 of_column) {
  return decay.rows ? of_column * decay.rows[row] : of_column;
}

[[gnu::always_inline]] inline F32 decay_of_column(const StateDecay& decay, std::int64_t column) {
  return decay.columns ? load(decay.columns + column) : broadcast(1.0F);
}

// Two tiles of 16 columns from `column` on: decayed, and rounded as operands in between.
[[gnu::noinline]] inline void decay_and_pair(const TileState& state, const ChunkDecay& decay,
                                             std::int64_t column) {
  for (std::int64_t tile = column / kLanes; tile < column / kLanes + 2; ++tile) {
    const F32 before = decay_of_column(decay.before, tile * kLanes);
    const F32 after = decay_of_column(decay.after, tile * kLanes);
    float* x = state.floats.at(tile, 0);
    float* pair = state.pairs.at(tile, 0);
    for (std::int64_t row = 0; row < state.row_tiles * kTileRows; row += 2) {
      const F32 first = load(x) * decay_of_row(decay.before, row, before);
      const F32 second = load(x + kLanes) * decay_of_row(decay.before, row + 1, before);
      store(pair, pair_bf16(first, second));
      store(x, first * decay_of_row(decay.after, row, after));
      store(x + kLanes, second * decay_of_row(decay.after, row + 1, after));
      x += 2 * kLanes;
      pair += kLanes;
    }
  }
}

// ---- results ----

// 32 tokens of 32 columns, from a token of the chunk and a column on: four tiles each, all columns
// of 16 tokens and then those of the next. `of_state` is what was read from M, without pairs.
struct RecurrenceResults {
  OutputBlock at;
  float* sums = nullptr;
  float* of_state = nullptr;  // null where nobody asked
};

// Rows of results that exist, and columns.
struct ResultSizes {
  std::int64_t rows, columns;
};

inline ResultSizes sizes_of(const RecurrenceResults& results, const ChunkSpan& span,
                            std::int64_t columns) {
  const std::int64_t rows = span.present - results.at.token;
  const std::int64_t left = columns - results.at.column;
  return {.rows = rows < kTileDepth ? rows : kTileDepth,
          .columns = left < kTileDepth ? left : kTileDepth};
}

// 16 columns of a token in four tiles; the next 16 are a tile further.
[[gnu::always_inline]] inline const float* result_row(const float* tiles, std::int64_t t) {
  return tiles + t / kTileRows * 2 * kTileFloats + t % kTileRows * kLanes;
}

// Sums over the heads of a group, which run one after the other: rows of fp32, by their order in
// the sweep. Null where every head has a key and a value of its own.
struct GroupSums {
  float* rows = nullptr;
  std::int64_t width = 0;
  bool is_first = true;
  bool is_last = true;
};

// Adds 32 columns of a row to those of the heads before. Returns whether they are all.
[[gnu::always_inline]] inline bool add_to_group(const GroupSums& group, std::int64_t row,
                                                std::int64_t column, F32& first, F32& second) {
  if (!group.rows) return true;
  float* const sums = group.rows + row * group.width + column;
  if (!group.is_first) {
    first += load(sums);
    second += load(sums + kLanes);
  }
  if (group.is_last) return true;
  store(sums, first);
  store(sums + kLanes, second);
  return false;
}

// Where y goes.
struct RecurrenceOutputs {
  OutputRows rows;
  std::int64_t columns = 0;
  bool stream = false;  // past the caches
  float scale = 1.0F;
  GroupSums group = {};
};

[[gnu::noinline]] inline void write_results(const RecurrenceOutputs& to, const ChunkSpan& span,
                                            const RecurrenceResults& results) {
  const ResultSizes sizes = sizes_of(results, span, to.columns);
  for (std::int64_t t = 0; t < sizes.rows; ++t) {
    const float* const sums = result_row(results.sums, t);
    const std::int64_t row = span.token + results.at.token + t;
    F32 first = load(sums) * to.scale;
    F32 second = load(sums + kTileFloats) * to.scale;
    if (!add_to_group(to.group, row, results.at.column, first, second)) continue;
    write_output(first, second, sizes.columns, to.rows.row(row) + 2 * results.at.column, to.stream);
  }
}

// Adds products of what was read from M with rows of `factors` to partial sums, [tokens, 16].
[[gnu::noinline]] inline void add_dots_of_state(const RecurrenceResults& results,
                                                const ChunkSpan& span, const HalfRows& factors,
                                                float* partial) {
  const auto [first_token, column] = results.at;
  const ResultSizes sizes = sizes_of(results, span, 0);
  for (std::int64_t t = 0; t < sizes.rows; ++t) {
    const float* const row = result_row(results.of_state, t);
    float* const sum = partial + (first_token + t) * kLanes;
    const F32 before = column == 0 ? F32{} : load(sum);
    store(sum, fma(load(row), factors.vector(first_token + t, column),
                   fma(load(row + kTileFloats), factors.vector(first_token + t, column + kLanes),
                       before)));
  }
}

// dots[t] of the `padded` tokens.
inline void add_partial_dots(const float* partial, std::int64_t padded, float* dots) {
  for (std::int64_t t = 0; t < padded; t += kTileRows) {
    F32 sums[kTileRows];
    for (std::int64_t i = 0; i < kTileRows; ++i) sums[i] = load(partial + (t + i) * kLanes);
    sum_lanes<kTileRows>(sums, dots + t);
  }
}

// ---- a chunk ----

// 32 tokens of 32 columns. `tiles` are eight.
[[gnu::always_inline]] inline RecurrenceResults read_block(const TileRecurrence& of,
                                                           const OutputBlock& at, bool of_state,
                                                           float* tiles) {
  const RecurrenceResults results{
      .at = at, .sums = tiles, .of_state = of_state ? tiles + 4 * kTileFloats : nullptr};
  const auto place = [](float* first) {
    return BlockTiles{
        {first, first + kTileFloats, first + 2 * kTileFloats, first + 3 * kTileFloats}};
  };
  const std::int64_t block = at.token / kTileRows;
  const std::int64_t tile = at.column / kLanes;
  zero_block<2>();
  add_block<2>(of.keys.queries, block, of.state.pairs, tile, of.keys.depth());
  if (of_state) store_block<2>(place(results.of_state));
  add_block<2>(of.keys.pairs, block, of.values, tile, block / 2 + 1);
  store_block<2>(place(results.sums));
  return results;
}

// The operands are packed. `tiles` are sixteen of scratch memory; finish() is given all results in
// turn. Fetches all there is to fetch.
template <class Finish>
void run_recurrence(const TileRecurrence& of, const ChunkSpan& span, const ChunkDecay& decay,
                    bool of_state, float* tiles, LineFetcher& fetcher, const Finish& finish) {
  decay_and_pair(of.state, decay, 0);
  RecurrenceResults before;
  for (std::int64_t column = 0; column < of.width(); column += kTileDepth) {
    if (column + kTileDepth < of.width()) decay_and_pair(of.state, decay, column + kTileDepth);
    for (std::int64_t token = 0; token < span.padded; token += kTileDepth) {
      const RecurrenceResults results =
          read_block(of, {.token = token, .column = column}, of_state,
                     before.sums == tiles ? tiles + 8 * kTileFloats : tiles);
      if (before.sums) finish(before);
      before = results;
    }
    const char* const* const until = fetcher.end - fetcher.next < fetcher.lines_per_step
                                         ? fetcher.end
                                         : fetcher.next + fetcher.lines_per_step;
    fetcher.next = fetch_lines(fetcher.next, until);
    update_state(of.state, of.keys.writes, of.values, column, span.padded / kTileDepth);
  }
  finish(before);
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
