// One chunk of a linear recurrence on tile registers, its tensors in whichever roles. With a the
// decay of a token, that all channels share,
//
//   M_t = a_t M_{t-1} + w_t' x_t        M [reads' channels, columns]
//   y_t = r_t M_t
//
// as in cpu/simd/chunk_tiles, whose parts these are: r takes the place of q, w that of k, x that of
// v. Either of r and w may be `scale` times a row: before its one rounding.
#pragma once

#include "cpu/simd/chunk_tiles/chunk_tiles.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

struct TileRecurrence {
  TileKeys keys;      // the side of r and w
  TileState state;    // M
  TileMatrix values;  // [columns / 16][chunk / 32]
  float read_scale = 1.0F;
  float write_scale = 1.0F;

  std::int64_t width() const { return state.column_tiles * kLanes; }
};

// The rows of a chunk, in the order of the recurrence.
struct RecurrenceRows {
  const HalfRows& reads;
  const HalfRows& writes;
  const HalfRows& values;
};

// Where y goes and, where there are `factors`, the sums over channels of its products with them:
// before it is rounded, [padded tokens, 16] to be added up.
struct RecurrenceOutputs {
  OutputRows rows;
  std::int64_t columns = 0;
  bool stream = false;  // past the caches
  const HalfRows* factors = nullptr;
  float* partial = nullptr;
};

inline void pack_recurrence(const TileRecurrence& of, const ChunkSpan& span,
                            const RecurrenceRows& rows, const TokenLogs& logs) {
  prepare_shared_decay(of.keys, span, rows.reads, rows.writes, logs, of.read_scale, of.write_scale);
  for (std::int64_t t = 0; t < span.padded; t += kTileDepth) {
    pack_columns(rows.values, t, kTileDepth, of.width(), of.values);
  }
}

// Two tiles side by side: rows of y, from a token of the chunk and a column on.
[[gnu::noinline]] inline void write_gradients(const RecurrenceOutputs& to, const ChunkSpan& span,
                                              const OutputBlock& at, const float* tiles) {
  const std::int64_t left = to.columns - at.column;
  const std::int64_t count = left < kTileDepth ? left : kTileDepth;
  const std::int64_t rows =
      span.present - at.token < kTileRows ? span.present - at.token : kTileRows;
  for (std::int64_t t = 0; t < rows; ++t) {
    const std::int64_t token = at.token + t;
    const F32 first = load(tiles + t * kLanes);
    const F32 second = load(tiles + kTileFloats + t * kLanes);
    write_output(first, second, count, to.rows.row(span.token + token) + 2 * at.column, to.stream);
    if (!to.factors) continue;
    float* const sum = to.partial + token * kLanes;
    const F32 before = at.column == 0 ? F32{} : load(sum);
    store(sum, fma(first, to.factors->vector(token, at.column),
                   fma(second, to.factors->vector(token, at.column + kLanes), before)));
  }
}

[[gnu::noinline]] inline void read_recurrence(const TileRecurrence& of, const ChunkSpan& span,
                                              std::int64_t column, const RecurrenceOutputs& to,
                                              float* out) {
  const std::int64_t tile = column / kLanes;
  for (std::int64_t block = 0; block < span.blocks(); block += 2) {
    fetch_state(of.state, column, block / 2, span.blocks() / 2);
    zero_block<2>();
    add_block<2>(of.keys.queries, block, of.state.pairs, tile, of.keys.depth());
    add_block<2>(of.keys.pairs, block, of.values, tile, block / 2 + 1);
    store_block<2>({{out, out + kTileFloats, out + 2 * kTileFloats, out + 3 * kTileFloats}});
    const std::int64_t token = block * kTileRows;
    write_gradients(to, span, {token, column}, out);
    write_gradients(to, span, {token + kTileRows, column}, out + 2 * kTileFloats);
  }
}

// `out` are four tiles of scratch memory. Fetches all there is to fetch.
inline void run_recurrence(const TileRecurrence& of, const ChunkSpan& span,
                           const RecurrenceRows& rows, const TokenLogs& logs,
                           const RecurrenceOutputs& to, float* out, LineFetcher& fetcher) {
  pack_recurrence(of, span, rows, logs);
  const StateDecay decay{.rows = of.keys.has_decay ? of.keys.decays : nullptr};
  for (std::int64_t column = 0; column < of.width(); column += kTileDepth) {
    read_recurrence(of, span, column, to, out);
    const char* const* const until = fetcher.end - fetcher.next < fetcher.lines_per_step
                                         ? fetcher.end
                                         : fetcher.next + fetcher.lines_per_step;
    fetcher.next = fetch_lines(fetcher.next, until);
    decay_state(of.state, decay, column);
    update_state(of.state, of.keys.writes, of.values, column, span.padded / kTileDepth);
    pair_state(of.state, column);
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

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
