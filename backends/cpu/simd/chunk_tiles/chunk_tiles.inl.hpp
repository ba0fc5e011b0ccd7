// The chunked forward kernel on tile registers.
//
// A task is a sequence, a query head and a tile of V. Its state lies in scratch memory as fp32. A
// chunk makes the operands of its tokens and then passes over the state once, 32 columns at a time:
//
//   o = (q~ S + P v) scale,   S := D S + k~^T v
#pragma once

#include "chunk_tiles_isa.hpp"
#include "cpu/simd/recurrent/recurrent_task.inl.hpp"
#include "tile_channel_decays.inl.hpp"
#include "tile_pairs.inl.hpp"
#include "tile_strips.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

struct TileTask {
  std::int64_t tokens = 0;
  std::int64_t chunk = 0;
  TileKeys keys;
  TileValues values;
  TileState state;
  OutputTarget target;
  StateView<const float*> initial;
  StateView<float*> final;
  FetchList* fetch_list = nullptr;  // null when nothing is fetched ahead
};

// ---- making a task ----

inline TileKeys tile_keys(const ChunkTilesTiling& tiling, const RecurrentForwardParams& p,
                          const TaskRange& range, float* scratch) {
  const ChunkTilesScratch& at = tiling.scratch;
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
  keys.pairs = {scratch + at.pairs, tokens_deep};
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

inline TileValues tile_values(const ChunkTilesTiling& tiling, const RecurrentForwardParams& p,
                              const TaskRange& range, float* scratch) {
  const ChunkTilesScratch& at = tiling.scratch;
  const std::int64_t left = p.value_dim - range.column;
  TileValues values;
  values.columns = left < tiling.tile_v ? left : tiling.tile_v;
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

inline TileTask tile_task(const ChunkTilesTiling& tiling, const RecurrentForwardParams& p,
                          std::int64_t index, float* scratch) {
  const TaskRange range = task_range(tiling, p, index);
  TileTask task;
  task.tokens = range.tokens;
  task.chunk = tiling.chunk;
  task.keys = tile_keys(tiling, p, range, scratch);
  task.values = tile_values(tiling, p, range, scratch);
  task.target = {.rows = task.values.o,
                 .columns = task.values.columns,
                 .scale = p.scale,
                 .stream = tiling.stream};
  task.state = {.floats = {scratch + tiling.scratch.state, task.keys.width / kTileRows},
                .pairs = {scratch + tiling.scratch.state_pairs, task.keys.depth()},
                .rows = p.key_dim,
                .columns = task.values.columns,
                .row_tiles = task.keys.width / kTileRows,
                .column_tiles = task.values.width / kLanes};
  task.initial = state_of(p.initial_state, range);
  task.final = state_of(p.final_state, range);
  return task;
}

// ---- outputs ----

// What the chunk at hand is made of.
struct TileChunk {
  const TileTask& task;
  ChunkSpan span;
  StripDecay decay = {};
  bool is_pending = false;         // whether rows are to be multiplied by keys.decays behind it
  const float* factors = nullptr;  // of the rows of q S, or null
  const HalfRows* v = nullptr;     // null where values are packed as a whole
  ExactBlocks exact = {};
  BesideProducts beside = {};
  // What `beside` works on.
  StripRounding rounding = {};
  ValuePacking packing = {};
  OutputWriting<false> writing = {};
  OutputWriting<true> factor_writing = {};
  StateWriting state_writing = {};
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
                                       .tiles = out,
                                       .at = {block * kTileRows, column}};
    for (std::int64_t i = 0; i < kTileRows / writing.kRows; ++i) writing.run_part(i);
  }
}

// ---- a chunk ----

inline Strip strip_at(const TileChunk& chunk, std::int64_t column) {
  const TileTask& task = chunk.task;
  const TileMatrix& values = task.values.values;
  const std::int64_t turn = column / kTileDepth % 2;
  Strip strip;
  strip.column = column;
  strip.state = {task.state.pairs.data, task.keys.depth()};
  const std::int64_t tile = chunk.v ? 2 * turn : column / kLanes;
  strip.values = {values.at(tile, 0), values.across};
  return strip;
}

// What has to be done before a strip's products. Values take turns in two places, as the strip
// before needs its own until its end; the state's products are its first.
inline TileWork packing_work(TileChunk& chunk, std::int64_t column) {
  ValuePacking& packing = chunk.packing;
  packing = {.rows = chunk.v, .padded = chunk.span.padded, .strip = strip_at(chunk, column)};
  return tile_work(packing, packing.parts());
}

inline TileWork rounding_work(TileChunk& chunk, std::int64_t column) {
  StripRounding& rounding = chunk.rounding;
  rounding = {.state = &chunk.task.state,
              .initial = chunk.span.token == 0 ? &chunk.task.initial : nullptr,
              .decay = chunk.decay,
              .strip = strip_at(chunk, column)};
  return tile_work(rounding, rounding.parts());
}

// The state's columns after the chunk.
[[gnu::noinline]] inline void update_strip(TileChunk& chunk, const Strip& strip) {
  const TileTask& task = chunk.task;
  const TileState& state = task.state;
  const bool is_last = task.final.data && chunk.span.token + chunk.span.present == task.tokens;
  const std::int64_t tile = strip.column / kLanes;
  for (std::int64_t row = 0; row < state.row_tiles; row += 2) {
    const BlockTiles at{{state.floats.at(tile, row), state.floats.at(tile + 1, row),
                         state.floats.at(tile, row + 1), state.floats.at(tile + 1, row + 1)}};
    load_block(at);
    add_block_beside(task.keys.writes, row, strip.values, 0, chunk.span.padded / kTileDepth,
                     chunk.beside);
    chunk.beside.results.run_all();
    store_block<2>(at);
    if (!is_last) continue;
    chunk.state_writing = {.state = &state,
                           .final = &task.final,
                           .pending = chunk.is_pending ? task.keys.decays : nullptr,
                           .column_tile = tile,
                           .row_tile = row};
    chunk.beside.results.add(tile_work(chunk.state_writing, StateWriting::kParts));
  }
}

// The first strip is ready.
inline void run_strips(TileChunk& chunk) {
  const TileTask& task = chunk.task;
  BesideProducts& beside = chunk.beside;
  for (std::int64_t column = 0; column < task.values.width; column += kTileDepth) {
    beside.operands.run_all();
    const std::int64_t next = column + kTileDepth;
    const bool has_next = next < task.values.width;
    if (has_next) beside.operands.add(packing_work(chunk, next));
    const Strip strip = strip_at(chunk, column);
    if (task.values.decay()) {
      multiply_decayed_outputs(chunk, strip);
    } else if (chunk.factors) {
      multiply_separate_outputs(chunk, strip);
    } else {
      multiply_outputs(chunk, strip);
    }
    if (has_next) beside.operands.add(rounding_work(chunk, next));
    update_strip(chunk, strip);
  }
  beside.results.run_all();
}

// Operands of the key side and of the first strip.
inline void prepare_operands(TileChunk& chunk, TileTokenDecays& decays) {
  const TileTask& task = chunk.task;
  const TileKeys& keys = task.keys;
  const ChunkSpan& span = chunk.span;
  const auto add_first_strip = [&] {
    chunk.beside.operands.add(packing_work(chunk, 0));
    chunk.beside.operands.add(rounding_work(chunk, 0));
  };
  if (keys.has_decay) chunk.decay.rows = keys.decays;
  if (task.values.decay()) {
    prepare_keys(keys, span);
    return add_first_strip();
  }
  HalfRows q, k;
  TokenLogs logs;
  find_rows(keys.q, span.token, span.present, span.padded, q);
  find_rows(keys.k, span.token, span.present, span.padded, k);
  token_logs(keys.g, keys.gamma, span.token, span.present, span.padded, logs);
  float* const sums = task.values.outputs;
  if (keys.gk.rows.data) {
    if (!divide_channel_decays(keys, span, logs, q, k)) {
      prepare_keys(keys, span);
      return add_first_strip();
    }
    exp_with_carry(keys.decays, keys.carries, keys.width);
    chunk.decay.rows = nullptr;
    chunk.is_pending = true;
    PairPreparation<false>(keys, span, {.k = k}, nullptr, sums).run(chunk.beside, add_first_strip);
  } else if (!keys.has_decay) {
    PairPreparation<false>(keys, span, {.q = &q, .k = k}, nullptr, sums)
        .run(chunk.beside, add_first_strip);
  } else {
    const F32 total = tile_token_decays(logs, span.padded, keys.carries, decays);
    for (std::int64_t i = 0; i < keys.width; i += kLanes) store(keys.decays + i, total);
    chunk.factors = decays.through;
    PairPreparation<true>(keys, span, {.q = &q, .k = k}, &decays, sums)
        .run(chunk.beside, add_first_strip);
  }
}

// How often something is fetched in a chunk: after every second product.
inline std::int64_t fetch_steps(const TileTask& task) {
  const std::int64_t halves = task.chunk / kTileDepth;
  const std::int64_t strips = task.values.width / kTileDepth;
  const std::int64_t depth = task.keys.depth();
  const std::int64_t pairs = halves * (halves + 1) / 2;
  return 2 * (pairs * depth + strips * (halves * depth + pairs + depth * halves));
}

// `is_pending` says, before and after, whether the state is yet to be multiplied by keys.pending.
inline void run_tile_chunk(const TileTask& task, const ChunkSpan& span, bool& is_pending) {
  const TileKeys& keys = task.keys;
  const TileValues& values = task.values;
  TileChunk chunk{.task = task, .span = span};
  TileTokenDecays decays;
  const bool fetches = task.fetch_list && span.token + 2 * task.chunk <= task.tokens;
  if (fetches) chunk.beside.fetcher = task.fetch_list->fetcher(fetch_steps(task));
  if (is_pending) chunk.decay.before = keys.pending;
  HalfRows v;
  if (values.decay()) {
    prepare_values(values, span, chunk.exact);
    chunk.decay.columns = values.decays;
  } else {
    find_rows(values.v, span.token, span.present, span.padded, v);
    chunk.v = &v;
  }
  prepare_operands(chunk, decays);
  run_strips(chunk);
  if (fetches) task.fetch_list->next_chunk();
  is_pending = chunk.is_pending;
  for (std::int64_t i = 0; is_pending && i < keys.width; i += kLanes) {
    store(keys.pending + i, load(keys.decays + i));
  }
}

inline void run_tile_task(TileTask& task, const char** lines) {
  FetchList list(lines, 0, 0);
  if (task.fetch_list == nullptr && lines != nullptr && task.tokens > task.chunk) {
    list = fetch_list(task.keys, task.values, task.target.stream, task.chunk, lines);
    task.fetch_list = &list;
  }
  if (task.tokens == 0) {
    read_floats(task.state, task.initial);
    return write_state(task.state, task.final);
  }
  reset_keys(task.keys);
  reset_values(task.values);
  bool is_pending = false;
  for (std::int64_t token = 0; token < task.tokens; token += task.chunk) {
    const std::int64_t left = task.tokens - token;
    const std::int64_t present = left < task.chunk ? left : task.chunk;
    run_tile_chunk(task,
                   {.token = token,
                    .present = present,
                    .padded = (present + kTileDepth - 1) / kTileDepth * kTileDepth},
                   is_pending);
  }
}

inline void run_chunk_tiles(const ChunkTilesTiling& tiling, const RecurrentForwardParams& params,
                            std::int64_t first_task, std::int64_t last_task, float* scratch) {
  const ChunkTilesScratch& at = tiling.scratch;
  for (std::int64_t i = at.zeros; i < at.size; i += kLanes) store(scratch + i, F32{});
  configure_tiles();
  const char* lines[FetchList::kMaxLines];
  for (std::int64_t index = first_task; index < last_task; ++index) {
    TileTask task = tile_task(tiling, params, index, scratch);
    run_tile_task(task, tiling.prefetch ? lines : nullptr);
  }
  release_tiles();
  if (tiling.stream) streamed_writes_done();
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
