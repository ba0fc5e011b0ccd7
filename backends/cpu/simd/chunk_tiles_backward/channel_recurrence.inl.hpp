// One span of a linear recurrence whose state decays by row or by column.
//
//   M := decay M     y_t = r_t M + sum_{s <= t} (r_t . w_s) x_s     M := M + sum_t w_t' x_t
//
// Decays between the tokens of a span are in their rows (channel_rows.inl.hpp). What is left to do
// for M at a span's end is kept for the next one's beginning, so that one pass over it decays and
// rounds. Products and what is done with their results take turns: a result's last sums are not
// waited for, and what a product reads was written some products before.
#pragma once

#include "tile_recurrence.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

// Two tiles of 16 columns from `column` on: decayed, and rounded as operands.
[[gnu::noinline]] inline void decay_and_pair(const TileState& state, const StateDecay& decay,
                                             std::int64_t column) {
  for (std::int64_t tile = column / kLanes; tile < column / kLanes + 2; ++tile) {
    const F32 of_column = decay.columns ? load(decay.columns + tile * kLanes) : broadcast(1.0F);
    float* x = state.floats.at(tile, 0);
    float* pair = state.pairs.at(tile, 0);
    for (std::int64_t row = 0; row < state.row_tiles * kTileRows; row += 2) {
      F32 factor[2] = {of_column, of_column};
      if (decay.rows) {
        factor[0] *= decay.rows[row];
        factor[1] *= decay.rows[row + 1];
      }
      const F32 first = load(x) * factor[0];
      const F32 second = load(x + kLanes) * factor[1];
      store(x, first);
      store(x + kLanes, second);
      store(pair, pair_bf16(first, second));
      x += 2 * kLanes;
      pair += kLanes;
    }
  }
}

// `out` are eight tiles of scratch memory. finish(at, tiles) is given results from a token of the
// span and a column on, 32 by 32 in four tiles: all tokens of 32 columns, then those of the next.
// Fetches all there is to fetch.
template <class Finish>
void run_channel_recurrence(const TileRecurrence& of, const ChunkSpan& span,
                            const RecurrenceRows& rows, const StateDecay& decay, float* out,
                            LineFetcher& fetcher, const Finish& finish) {
  pack_recurrence(of, span, rows, TokenLogs{});
  decay_and_pair(of.state, decay, 0);
  OutputBlock before;
  float* results = nullptr;
  for (std::int64_t column = 0; column < of.width(); column += kTileDepth) {
    if (column + kTileDepth < of.width()) decay_and_pair(of.state, decay, column + kTileDepth);
    const std::int64_t tile = column / kLanes;
    for (std::int64_t block = 0; block < span.blocks(); block += 2) {
      float* const to = results == out ? out + 4 * kTileFloats : out;
      zero_block<2>();
      add_block<2>(of.keys.queries, block, of.state.pairs, tile, of.keys.depth());
      add_block<2>(of.keys.pairs, block, of.values, tile, block / 2 + 1);
      store_block<2>({{to, to + kTileFloats, to + 2 * kTileFloats, to + 3 * kTileFloats}});
      if (results) finish(before, results);
      before = {.token = block * kTileRows, .column = column};
      results = to;
    }
    const char* const* const until = fetcher.end - fetcher.next < fetcher.lines_per_step
                                         ? fetcher.end
                                         : fetcher.next + fetcher.lines_per_step;
    fetcher.next = fetch_lines(fetcher.next, until);
    update_state(of.state, of.keys.writes, of.values, column, span.padded / kTileDepth);
  }
  finish(before, results);
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
