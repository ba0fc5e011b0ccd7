// The chunked forward kernel on tile registers.
//
// A task is a sequence, a query head and a tile of V. Its state lies in scratch memory as fp32; one
// that is a single chunk reads and writes it where the caller has it. A chunk makes the operands of
// its tokens and then passes over the state once, 32 columns at a time:
//
//   o = (q~ S + P v) scale,   S := D S + k~^T v
//
// Moderate decays of g and gamma are factors of v and o instead, and S does not decay.
#pragma once

#include "task.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

// Decays of g and gamma at the tokens of a chunk, as factors of rows of v and of o where they are
// moderate.
struct ChunkTokens {
  TokenLogs logs;
  bool is_moderate = false;
  TokenFactors factors;
  float state_factor = 1.0F;  // what is kept of the state takes it before the chunk
};

// What goes on from chunk to chunk.
struct TaskProgress {
  StateScale scale;          // where all channels decay alike
  bool has_pending = false;  // whether the state's rows are to be multiplied by keys.pending
  ChunkTokens tokens[2];     // of this chunk and of the next, in turns
};

inline ChunkSpan span_at(const TileTask& task, std::int64_t token) {
  const std::int64_t left = task.tokens - token;
  const std::int64_t present = left < task.chunk ? left : task.chunk;
  return {.token = token,
          .present = present,
          .padded = (present + kTileDepth - 1) / kTileDepth * kTileDepth};
}

inline bool has_token_decays(const TileTask& task) {
  return task.keys.has_decay && !task.keys.gk.rows.data && !task.values.decay();
}

// What a chunk's tokens decay by is made while the products of the chunk before run: its rows of g
// are lines of their own.
struct TokenPreparation {
  const TileTask* task = nullptr;
  TaskProgress* progress = nullptr;
  std::int64_t token = 0;

  static constexpr std::int64_t kParts = 2;

  [[gnu::noinline]] void run_part(std::int64_t index) const {
    const ChunkSpan span = span_at(*task, token);
    ChunkTokens& tokens = progress->tokens[token / task->chunk % 2];
    const TileKeys& keys = task->keys;
    if (index == 0) {
      return token_logs(keys.g, keys.gamma, span.token, span.present, span.padded, tokens.logs);
    }
    const TokenLogRange range = range_of(tokens.logs, span.padded);
    const double log = scale_for(progress->scale.log, range.fall, range.rise);
    tokens.is_moderate = log == log;
    tokens.state_factor = progress->scale.move_to(tokens.is_moderate ? log : 0.0);
    if (!tokens.is_moderate) return;
    token_factors(tokens.logs, span.padded, task->scale, progress->scale, tokens.factors);
  }
};

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
  packing = {.rows = chunk.v,
             .factors = chunk.value_factors,
             .padded = chunk.span.padded,
             .strip = strip_at(chunk, column)};
  return tile_work(packing, packing.parts());
}

inline TileWork rounding_work(TileChunk& chunk, std::int64_t column) {
  StripRounding& rounding = chunk.rounding;
  rounding = {.state = &chunk.task.state,
              .initial = chunk.span.token == 0 ? &chunk.task.initial : nullptr,
              .in_place = chunk.reads_in_place,
              .decay = chunk.decay,
              .strip = strip_at(chunk, column)};
  return tile_work(rounding, rounding.parts());
}

inline BlockTiles state_tiles(const TileState& state, std::int64_t tile, std::int64_t row) {
  return {{state.floats.at(tile, row), state.floats.at(tile + 1, row),
           state.floats.at(tile, row + 1), state.floats.at(tile + 1, row + 1)}};
}

// Where tiles of a state pass through that nothing else is kept of: a chunk is all there is.
inline BlockTiles passing_tiles(const TileState& state) {
  float* const first = state.floats.data;
  return {{first, first + kTileFloats, first + 2 * kTileFloats, first + 3 * kTileFloats}};
}

// The state's columns after the chunk.
[[gnu::noinline]] inline void update_strip(TileChunk& chunk, const Strip& strip) {
  const TileTask& task = chunk.task;
  const TileState& state = task.state;
  const bool is_last = task.final.data && chunk.is_last();
  const bool is_only = is_last && chunk.reads_in_place;
  const std::int64_t tile = strip.column / kLanes;
  for (std::int64_t row = 0; row < state.row_tiles; row += 2) {
    const BlockTiles at = is_only ? passing_tiles(state) : state_tiles(state, tile, row);
    if (chunk.reads_in_place) {
      load_block(tile_of(task.initial, tile, row), task.initial.key_stride);
    } else {
      load_block(at);
    }
    add_block_beside(task.keys.writes, row, strip.values, 0, chunk.span.padded / kTileDepth,
                     chunk.beside);
    chunk.beside.results.run_all();
    store_block<2>(at);
    if (!is_last) continue;
    chunk.state_writing = {.state = &state,
                           .final = &task.final,
                           .tiles = at,
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
  const bool is_read_again = task.final.data || !chunk.is_last();
  for (std::int64_t column = 0; column < task.values.width; column += kTileDepth) {
    beside.operands.run_all();
    const std::int64_t next = column + kTileDepth;
    const bool has_next = next < task.values.width;
    if (column == 0) beside.operands.add(chunk.next_tokens);
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
    if (is_read_again) update_strip(chunk, strip);
  }
  beside.operands.run_all();
  beside.results.run_all();
}

// Where decays of g and gamma are factors of rows, or will be.
inline void scale_tokens(TileChunk& chunk, TaskProgress& progress, const ChunkTokens& tokens) {
  const TileTask& task = chunk.task;
  const TileKeys& keys = task.keys;
  const auto fill = [&](float* factors, float factor) {
    for (std::int64_t i = 0; i < keys.width; i += kLanes) store(factors + i, broadcast(factor));
  };
  if (tokens.state_factor != 1.0F) {
    fill(keys.pending, tokens.state_factor);
    chunk.decay.before = keys.pending;
  }
  if (!tokens.is_moderate) return;
  chunk.value_factors = tokens.factors.of_values;
  chunk.scales = tokens.factors.of_outputs;
  chunk.decay.rows = nullptr;
  if (!chunk.is_last() || progress.scale.log == 0.0) return;
  fill(keys.decays, progress.scale.move_to(0.0));
  chunk.is_pending = true;
}

// Decays of each channel as factors of rows. Returns false where they are too large for it.
inline bool scale_channels(TileChunk& chunk, const HalfRows& q, HalfRows& k) {
  const TileKeys& keys = chunk.task.keys;
  const ChunkSpan& span = chunk.span;
  TokenLogs logs;
  token_logs(keys.g, keys.gamma, span.token, span.present, span.padded, logs);
  if (!divide_channel_decays(keys, span, logs, q, k)) return false;
  exp_with_carry(keys.decays, keys.carries, keys.width);
  chunk.decay.rows = nullptr;
  chunk.is_pending = true;
  return true;
}

// Operands of the key side and of the first strip.
inline void prepare_operands(TileChunk& chunk, TaskProgress& progress, TileTokenDecays& decays) {
  const TileTask& task = chunk.task;
  const TileKeys& keys = task.keys;
  const ChunkSpan& span = chunk.span;
  const auto add_first_strip = [&] {
    chunk.reads_in_place =
        span.token == 0 && !chunk.decay.any() && lies_in_tiles(task.state, task.initial);
    chunk.beside.operands.add(packing_work(chunk, 0));
    chunk.beside.operands.add(rounding_work(chunk, 0));
  };
  if (keys.has_decay) chunk.decay.rows = keys.decays;
  if (task.values.decay()) {
    prepare_keys(keys, span);
    return add_first_strip();
  }
  HalfRows q, k;
  find_rows(keys.q, span.token, span.present, span.padded, q);
  find_rows(keys.k, span.token, span.present, span.padded, k);
  float* const sums = task.values.outputs;
  ChunkTokens& tokens = progress.tokens[span.token / task.chunk % 2];
  if (has_token_decays(task)) scale_tokens(chunk, progress, tokens);
  if (keys.gk.rows.data) {
    if (!scale_channels(chunk, q, k)) {
      prepare_keys(keys, span);
      return add_first_strip();
    }
    ScorePreparation<false>(keys, span, {.k = k}, nullptr, sums).run(chunk.beside, add_first_strip);
  } else if (!keys.has_decay || tokens.is_moderate) {
    ScorePreparation<false>(keys, span, {.q = &q, .k = k}, nullptr, sums)
        .run(chunk.beside, add_first_strip);
  } else {
    const F32 total = tile_token_decays(tokens.logs, span.padded, keys.carries, decays);
    for (std::int64_t i = 0; i < keys.width; i += kLanes) store(keys.decays + i, total);
    chunk.factors = decays.through;
    ScorePreparation<true>(keys, span, {.q = &q, .k = k}, &decays, sums)
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

inline void run_tile_chunk(const TileTask& task, const ChunkSpan& span, TaskProgress& progress) {
  const TileKeys& keys = task.keys;
  const TileValues& values = task.values;
  TileChunk chunk{.task = task, .span = span, .scales = task.scales};
  TileTokenDecays decays;
  const bool fetches = task.fetch_list && span.token + 2 * task.chunk <= task.tokens;
  if (fetches) chunk.beside.fetcher = task.fetch_list->fetcher(fetch_steps(task));
  if (progress.has_pending) chunk.decay.before = keys.pending;
  HalfRows v;
  if (values.decay()) {
    prepare_values(values, span, chunk.exact);
    chunk.decay.columns = values.decays;
  } else {
    find_rows(values.v, span.token, span.present, span.padded, v);
    chunk.v = &v;
  }
  prepare_operands(chunk, progress, decays);
  const TokenPreparation next{
      .task = &task, .progress = &progress, .token = span.token + task.chunk};
  if (has_token_decays(task) && !chunk.is_last()) chunk.next_tokens = tile_work(next, next.kParts);
  run_strips(chunk);
  if (fetches) task.fetch_list->next_chunk();
  progress.has_pending = chunk.is_pending;
  for (std::int64_t i = 0; progress.has_pending && i < keys.width; i += kLanes) {
    store(keys.pending + i, load(keys.decays + i));
  }
}

inline void run_tile_task(TileTask& task, const char** lines) {
  FetchList list(lines, 0, 0);
  if (task.fetch_list == nullptr && lines != nullptr && task.tokens > task.chunk) {
    list = fetch_list(task.keys, task.values, task.target.stream, task.chunk, lines);
    list.add(task.keys.g, 1);
    task.fetch_list = &list;
  }
  if (task.tokens == 0) {
    read_floats(task.state, task.initial);
    return write_state(task.state, task.final);
  }
  reset_keys(task.keys);
  reset_values(task.values);
  TaskProgress progress;
  if (has_token_decays(task)) {
    const TokenPreparation first{.task = &task, .progress = &progress};
    for (std::int64_t i = 0; i < first.kParts; ++i) first.run_part(i);
  }
  for (std::int64_t token = 0; token < task.tokens; token += task.chunk) {
    run_tile_chunk(task, span_at(task, token), progress);
  }
}

inline void run_chunk_tiles(const Tiling& tiling, const ForwardParams& params,
                            std::int64_t first_task, std::int64_t last_task, float* scratch) {
  const Scratch& at = tiling.scratch;
  for (std::int64_t i = at.zeros; i < at.size; i += kLanes) store(scratch + i, F32{});
  configure_tiles();
  const char* lines[FetchList::kMaxLines];
  for (std::int64_t index = first_task; index < last_task; ++index) {
    const TaskRange sequence = task_range(tiling, params, index);
    const StagedState staged{scratch + at.staged, tiling.tile_v,
                             columns_of(tiling, params, sequence)};
    for_each_segment(params, sequence, staged,
                     [&](const TaskRange& range, const SegmentStates& states) {
                       TileTask task = tile_task(tiling, params, range, states, scratch);
                       run_tile_task(task, tiling.prefetch ? lines : nullptr);
                     });
  }
  release_tiles();
  if (tiling.stream) streamed_writes_done();
}

inline Instance instance() { return {.run = run_chunk_tiles}; }

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles
