// A chunk's rows of o, from the products of its operands.
#pragma once

#include "tile_pairs.inl.hpp"
#include "tile_task.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

// What the chunk at hand is made of.
struct TileChunk {
  const TileTask& task;
  ChunkSpan span;
  StripDecay decay = {};
  bool reads_in_place = false;  // whether the state is read where the caller has it
  bool is_pending = false;      // whether rows are to be multiplied by keys.decays behind it
  const float* value_factors = nullptr;  // of the rows of v, or null
  const float* factors = nullptr;        // of the rows of q S, or null
  const float* scales = nullptr;         // of the rows of o
  const HalfRows* v = nullptr;           // null where values are packed as a whole
  ExactBlocks exact = {};
  BesideProducts beside = {};
  // What `beside` works on.
  StripRounding rounding = {};
  ValuePacking packing = {};
  OutputWriting<false> writing = {};
  OutputWriting<true> factor_writing = {};
  StateWriting state_writing = {};
  TileWork next_tokens = {};  // what the next chunk's tokens decay by

  bool is_last() const { return span.token + span.present == task.tokens; }
};

// Rows of q~ S + P v, 32 at a time.
[[gnu::noinline]] inline void multiply_outputs(TileChunk& chunk, const Strip& strip) {
  const TileKeys& keys = chunk.task.keys;
  float* const out = chunk.task.values.outputs;
  BesideProducts& beside = chunk.beside;
  for (std::int64_t block = 0; block < chunk.span.blocks(); block += 2) {
    zero_block<2>();
    add_block_beside(keys.queries, block, strip.state, 0, keys.depth(), beside);
    add_block_beside(keys.pairs, block, strip.values, 0, block / 2 + 1, beside);
    beside.results.run_all();
    store_block<2>({{out, out + kTileFloats, out + 2 * kTileFloats, out + 3 * kTileFloats}});
    chunk.writing = {.to = &chunk.task.target,
                     .span = &chunk.span,
                     .scales = chunk.scales,
                     .tiles = out,
                     .at = {block * kTileRows, strip.column}};
    beside.results.add(tile_work(chunk.writing, 2 * kTileRows / chunk.writing.kRows));
  }
}

// Rows of q S and of P v, 16 at a time: q S is yet to decay.
[[gnu::noinline]] inline void multiply_separate_outputs(TileChunk& chunk, const Strip& strip) {
  const TileKeys& keys = chunk.task.keys;
  float* const out = chunk.task.values.outputs;
  BesideProducts& beside = chunk.beside;
  for (std::int64_t block = 0; block < chunk.span.blocks(); ++block) {
    zero_block<2>();
    add_row_beside<0>(keys.queries, block, strip.state, 0, keys.depth(), beside);
    add_row_beside<2>(keys.pairs, block, strip.values, 0, block / 2 + 1, beside);
    beside.results.run_all();
    store_block<2>({{out, out + kTileFloats, out + 2 * kTileFloats, out + 3 * kTileFloats}});
    chunk.factor_writing = {.to = &chunk.task.target,
                            .span = &chunk.span,
                            .scales = chunk.scales,
                            .factors = chunk.factors,
                            .tiles = out,
                            .at = {block * kTileRows, strip.column}};
    beside.results.add(tile_work(chunk.factor_writing, kTileRows / chunk.factor_writing.kRows));
  }
}

// With a gv: o_t = reads_t (start R_t + what P reads), by column.
[[gnu::noinline]] inline void decay_outputs(const TileValues& values, std::int64_t block,
                                            std::int64_t column, const float* from_state,
                                            float* out) {
  const F32 start = load(values.starts + block * values.width + column);
  const float* reads = values.reads + block * kTileRows * values.width + column;
  for (std::int64_t t = 0; t < kTileRows; ++t) {
    const F32 sum = fma(load(from_state + t * kLanes), start, load(out + t * kLanes));
    store(out + t * kLanes, sum * load(reads));
    reads += values.width;
  }
}

[[gnu::noinline]] inline void multiply_decayed_outputs(const TileChunk& chunk, const Strip& strip) {
  const TileKeys& keys = chunk.task.keys;
  const TileValues& values = chunk.task.values;
  const std::int64_t column = strip.column;
  const std::int64_t tile = column / kLanes;
  float* const out = values.outputs;
  float* const from_state = out + 2 * kTileFloats;
  for (std::int64_t block = 0; block < chunk.span.blocks(); ++block) {
    zero_block<1>();
    add_block<1>(keys.queries, block, strip.state, 0, keys.depth());
    store_block<1>({{from_state, from_state + kTileFloats}});
    zero_block<1>();
    add_block<1>(keys.pairs, block, values.blocks[block], tile, block / 2 + 1);
    store_block<1>({{out, out + kTileFloats}});
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t first = column + half * kLanes;
      decay_outputs(values, block, first, from_state + half * kTileFloats,
                    out + half * kTileFloats);
      if (!chunk.exact[block]) continue;
      HalfRows v;
      half_rows(values.v, chunk.span.token, chunk.span.present, chunk.span.padded, v);
      add_block_values_exactly(values, v, block * kTileRows, first, keys.sums.at(block, block),
                               out + half * kTileFloats);
    }
    const OutputWriting<false> writing{.to = &chunk.task.target,
                                       .span = &chunk.span,
                                       .scales = chunk.scales,
                                       .tiles = out,
                                       .at = {block * kTileRows, column}};
    for (std::int64_t i = 0; i < kTileRows / writing.kRows; ++i) writing.run_part(i);
  }
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
