// The chunked forward kernel on tile registers.
//
// A task is a sequence, a query head and a tile of V. Its state lies in scratch memory twice: fp32,
// and as pairs of bf16 for the products that read it. A chunk passes over both once, 32 columns at
// a time:
//
//   o = (q~ S + P v) scale,   S := D S + k~^T v,   S once more as pairs
#pragma once

#include "chunk_tiles_isa.hpp"
#include "cpu/simd/chunk/fetch_list.inl.hpp"
#include "cpu/simd/chunk/output_rows.inl.hpp"
#include "cpu/simd/recurrent/recurrent_task.inl.hpp"
#include "tile_state.inl.hpp"
#include "tile_values.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

struct TileTask {
  std::int64_t tokens = 0;
  std::int64_t chunk = 0;
  float scale = 1.0F;
  bool stream = false;
  TileKeys keys;
  TileValues values;
  TileState state;
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
  task.scale = p.scale;
  task.stream = tiling.stream;
  task.keys = tile_keys(tiling, p, range, scratch);
  task.values = tile_values(tiling, p, range, scratch);
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

// 32 columns of one token, `count` of which exist.
[[gnu::always_inline]] inline void write_output(F32 first, F32 second, std::int64_t count,
                                                char* target, bool stream) {
  const F32 halves = join_bf16(first, second);
  if (count < kTileDepth) {
    char tail[64];
    __builtin_memcpy(tail, &halves, sizeof(halves));
    copy_tail(tail, 2 * count, target);
  } else if (stream && reinterpret_cast<std::uintptr_t>(target) % sizeof(F32) == 0) {
    stream_vector(halves, target);
  } else {
    __builtin_memcpy(target, &halves, sizeof(halves));
  }
}

// Where rows of o go, from a token of the chunk and a column on.
struct OutputBlock {
  std::int64_t token = 0;   // of the chunk
  std::int64_t column = 0;  // of the task
};

// Two tiles side by side: rows of o.
[[gnu::noinline]] inline void write_tiles(const TileTask& task, const ChunkSpan& span,
                                          const OutputBlock& at, const float* tiles) {
  const TileValues& values = task.values;
  const std::int64_t left = values.columns - at.column;
  const std::int64_t rows =
      span.present - at.token < kTileRows ? span.present - at.token : kTileRows;
  char* target = values.o.row(span.token + at.token) + 2 * at.column;
  for (std::int64_t t = 0; t < rows; ++t) {
    write_output(load(tiles + t * kLanes) * task.scale,
                 load(tiles + kTileFloats + t * kLanes) * task.scale,
                 left < kTileDepth ? left : kTileDepth, target, task.stream);
    target += values.o.step;
  }
}

[[gnu::noinline]] inline void multiply_outputs(const TileTask& task, const ChunkSpan& span,
                                               std::int64_t column) {
  const TileKeys& keys = task.keys;
  const std::int64_t tile = column / kLanes;
  float* const out = task.values.outputs;
  for (std::int64_t block = 0; block < span.blocks(); block += 2) {
    fetch_state(task.state, column, block / 2, span.blocks() / 2);
    zero_block<2>();
    add_block<2>(keys.queries, block, task.state.pairs, tile, keys.depth());
    add_block<2>(keys.pairs, block, task.values.values, tile, block / 2 + 1);
    store_block<2>({{out, out + kTileFloats, out + 2 * kTileFloats, out + 3 * kTileFloats}});
    const std::int64_t token = block * kTileRows;
    write_tiles(task, span, {token, column}, out);
    write_tiles(task, span, {token + kTileRows, column}, out + 2 * kTileFloats);
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

[[gnu::noinline]] inline void multiply_decayed_outputs(const TileTask& task, const ChunkSpan& span,
                                                       std::int64_t column,
                                                       const ExactBlocks& exact) {
  const TileKeys& keys = task.keys;
  const TileValues& values = task.values;
  const std::int64_t tile = column / kLanes;
  float* const out = values.outputs;
  float* const from_state = out + 2 * kTileFloats;
  for (std::int64_t block = 0; block < span.blocks(); ++block) {
    zero_block<1>();
    add_block<1>(keys.queries, block, task.state.pairs, tile, keys.depth());
    store_block<1>({{from_state, from_state + kTileFloats}});
    zero_block<1>();
    add_block<1>(keys.pairs, block, values.blocks[block], tile, block / 2 + 1);
    store_block<1>({{out, out + kTileFloats}});
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t first = column + half * kLanes;
      decay_outputs(values, block, first, from_state + half * kTileFloats,
                    out + half * kTileFloats);
      if (!exact[block]) continue;
      HalfRows v;
      half_rows(values.v, span.token, span.present, span.padded, v);
      add_block_values_exactly(values, v, block * kTileRows, first, keys.sums.at(block, block),
                               out + half * kTileFloats);
    }
    write_tiles(task, span, {block * kTileRows, column}, out);
  }
}

// ---- a chunk ----

inline void run_tile_chunk(const TileTask& task, const ChunkSpan& span) {
  const TileKeys& keys = task.keys;
  const TileValues& values = task.values;
  ExactBlocks exact;
  prepare_keys(keys, span);
  prepare_values(values, span, exact);
  LineFetcher fetcher;
  const bool fetches = task.fetch_list && span.token + 2 * task.chunk <= task.tokens;
  if (fetches) fetcher = task.fetch_list->fetcher(values.width / kTileDepth);
  const StateDecay decay{.rows = keys.has_decay ? keys.decays : nullptr,
                         .columns = values.decay() ? values.decays : nullptr};
  for (std::int64_t column = 0; column < values.width; column += kTileDepth) {
    if (values.decay()) {
      multiply_decayed_outputs(task, span, column, exact);
    } else {
      multiply_outputs(task, span, column);
    }
    const char* const* const until = fetcher.end - fetcher.next < fetcher.lines_per_step
                                         ? fetcher.end
                                         : fetcher.next + fetcher.lines_per_step;
    fetcher.next = fetch_lines(fetcher.next, until);
    decay_state(task.state, decay, column);
    update_state(task.state, keys.writes, values.values, column, span.padded / kTileDepth);
    pair_state(task.state, column);
  }
  if (fetches) task.fetch_list->next_chunk();
}

inline void run_tile_task(TileTask& task, const char** lines) {
  FetchList list(lines, 0, 0);
  if (task.fetch_list == nullptr && lines != nullptr && task.tokens > task.chunk) {
    list = fetch_list(task.keys, task.values, task.stream, task.chunk, lines);
    task.fetch_list = &list;
  }
  read_state(task.state, task.initial);
  reset_keys(task.keys);
  reset_values(task.values);
  for (std::int64_t token = 0; token < task.tokens; token += task.chunk) {
    const std::int64_t left = task.tokens - token;
    const std::int64_t present = left < task.chunk ? left : task.chunk;
    run_tile_chunk(task, {.token = token,
                          .present = present,
                          .padded = (present + kTileDepth - 1) / kTileDepth * kTileDepth});
  }
  write_state(task.state, task.final);
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
