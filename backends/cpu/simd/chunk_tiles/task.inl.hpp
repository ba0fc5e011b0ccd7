// A task of the chunked forward kernel on tile registers: a sequence, a query head and a tile of V,
// and where in scratch memory its parts are.
#pragma once

#include "channel_decays.inl.hpp"
#include "chunk_tiles_params.hpp"
#include "cpu/simd/vector/segments.inl.hpp"
#include "outputs.inl.hpp"
#include "scores.inl.hpp"
#include "state.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

using simd::chunk_tiles::Instance;
using simd::chunk_tiles::Scratch;
using simd::chunk_tiles::Tiling;

struct TileTask {
  std::int64_t tokens = 0;
  std::int64_t chunk = 0;
  TileKeys keys;
  TileValues values;
  TileState state;
  OutputTarget target;
  StateView<const float*> initial;
  StateView<float*> final;
  float scale = 1.0F;
  alignas(64) float scales[kMaxChunk];  // the same for every token
  FetchList* fetch_list = nullptr;      // null when nothing is fetched ahead
};

// ---- making a task ----

inline TileKeys tile_keys(const Tiling& tiling, const ForwardParams& p, const TaskRange& range,
                          float* scratch) {
  const Scratch& at = tiling.scratch;
  const auto source = [&](const TokenTensor<const void*>& tensor, std::int64_t head,
                          std::int64_t copies) {
    return HalfSource{.rows = rows_of<const char>(tensor, range, head, 0),
                      .elements = p.key_dim,
                      .copies = reinterpret_cast<char*>(scratch + copies),
                      .zeros = reinterpret_cast<const char*>(scratch + at.zeros)};
  };
  TileKeys keys;
  keys.q = source(p.q, range.head, at.q_copies);
  keys.k = source(p.k, range.kv_head, at.k_copies);
  keys.gk = {.rows = rows_of<const char>(p.gk, range, range.head, 0),
             .elements = p.key_dim,
             .buffer = scratch + at.key_gates,
             .zeros = scratch + at.zeros};
  keys.g = rows_of<const char>(p.g, range, range.head, 0);
  keys.gamma = gamma_of(p, range);
  keys.balance = balance_of(p, range, 1.0F);
  keys.has_decay = has_key_decay(p);
  keys.keeps_sums = p.gv.data != nullptr;
  keys.channels = p.key_dim;
  keys.width = (p.key_dim + kTileDepth - 1) / kTileDepth * kTileDepth;
  const std::int64_t depth = keys.width / kTileDepth;
  const std::int64_t tokens_deep = tiling.chunk / kTileDepth;
  keys.queries = {scratch + at.queries, depth};
  keys.keys = {scratch + at.keys, depth};
  keys.writes = {scratch + at.writes, tokens_deep};
  keys.sums = {scratch + at.sums, tiling.chunk / kTileRows};
  keys.scores = {scratch + at.scores, tokens_deep};
  keys.decays = scratch + at.key_decays;
  keys.carries = scratch + at.key_carries;
  keys.pending = scratch + at.key_pending;
  keys.magnitudes = scratch + at.key_magnitudes;
  keys.near_keys = scratch + at.near_keys;
  keys.token_decays = scratch + at.key_token_decays;
  keys.relative = scratch + at.key_relative;
  keys.ends = scratch + at.key_ends;
  keys.inverses = scratch + at.key_inverses;
  keys.block_decays = scratch + at.key_block_decays;
  return keys;
}

inline TileValues tile_values(const Tiling& tiling, const ForwardParams& p, const TaskRange& range,
                              float* scratch) {
  const Scratch& at = tiling.scratch;
  TileValues values;
  values.columns = columns_of(tiling, p, range);
  values.width = (values.columns + kTileDepth - 1) / kTileDepth * kTileDepth;
  values.v = {.rows = rows_of<const char>(p.v, range, range.kv_head, range.column),
              .elements = values.columns,
              .copies = reinterpret_cast<char*>(scratch + at.v_copies),
              .zeros = reinterpret_cast<const char*>(scratch + at.zeros)};
  values.gv = {.rows = rows_of<const char>(p.gv, range, range.head, range.column),
               .elements = values.columns,
               .buffer = scratch + at.value_gates,
               .zeros = scratch + at.zeros};
  values.balance = balance_of(p, range, -1.0F);
  values.o = rows_of<char>(p.o, range, range.head, range.column);
  const std::int64_t tokens_deep = tiling.chunk / kTileDepth;
  values.values = {scratch + at.values, tokens_deep};
  for (std::int64_t block = 0; block < tiling.chunk / kTileRows; ++block) {
    values.blocks[block] = {scratch + at.value_blocks + block * tiling.chunk * tiling.tile_v / 2,
                            tokens_deep};
  }
  values.outputs = scratch + at.outputs;
  values.token_decays = scratch + at.value_token_decays;
  values.reads = scratch + at.value_reads;
  values.ends = scratch + at.value_ends;
  values.inverses = scratch + at.value_inverses;
  values.starts = scratch + at.value_starts;
  values.decays = scratch + at.value_decays;
  values.carries = scratch + at.value_carries;
  values.zeros = scratch + at.zeros;
  return values;
}

inline TileTask tile_task(const Tiling& tiling, const ForwardParams& p, const TaskRange& range,
                          const SegmentStates& states, float* scratch) {
  TileTask task;
  task.tokens = range.tokens;
  task.chunk = tiling.chunk;
  task.keys = tile_keys(tiling, p, range, scratch);
  task.values = tile_values(tiling, p, range, scratch);
  task.target = {.rows = task.values.o, .columns = task.values.columns, .stream = tiling.stream};
  task.state = {.floats = {scratch + tiling.scratch.state, task.keys.width / kTileRows},
                .pairs = {scratch + tiling.scratch.state_pairs, task.keys.depth()},
                .rows = p.key_dim,
                .columns = task.values.columns,
                .row_tiles = task.keys.width / kTileRows,
                .column_tiles = task.values.width / kLanes};
  task.initial = states.initial;
  task.final = states.final;
  task.scale = p.scale;
  for (float& scale : task.scales) scale = p.scale;
  return task;
}

// ---- the rows of o ----
//
// A chunk's rows of o, from the products of its operands.

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
    add_block_beside(keys.scores, block, strip.values, 0, block / 2 + 1, beside);
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
    add_row_beside<2>(keys.scores, block, strip.values, 0, block / 2 + 1, beside);
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
    add_block<1>(keys.scores, block, values.blocks[block], tile, block / 2 + 1);
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

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles
