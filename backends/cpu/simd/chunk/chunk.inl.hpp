// The chunked forward kernel, compiled once per instruction set.
//
// A task keeps its tile of the state in scratch memory with the chunk's values right behind it, so
// that o = [q~ | scores] [S ; v] is one product, and S = D S + k~^T v the other.
#pragma once

#include "bf16_pairs.inl.hpp"
#include "chunk_params.hpp"
#include "cpu/simd/vector/product.inl.hpp"
#include "cpu/simd/vector/rows.inl.hpp"
#include "cpu/simd/vector/segments.inl.hpp"
#include "keys.inl.hpp"
#include "values.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk {

using simd::chunk::Instance;
using simd::chunk::Scratch;
using simd::chunk::Tiling;

struct ChunkTask {
  std::int64_t tokens = 0;
  bool stream = false;
  ChunkKeys keys;
  ChunkValues values;
  StateView<const float*> initial;
  StateView<float*> final;
  FetchList* fetch_list = nullptr;  // null when nothing is fetched ahead
  float* state = nullptr;           // [keys.padded, values.padded]
  ChunkPairs pairs;
};

// ---- making a task ----

inline ChunkKeys chunk_keys(const Tiling& tiling, const ForwardParams& p, const TaskRange& range,
                            float* scratch) {
  const Scratch& at = tiling.scratch;
  const float* const zeros = scratch + at.zeros;
  const auto source = [&](const TokenTensor<const void*>& tensor, std::int64_t head,
                          std::int64_t buffer) {
    return RowSource{.rows = rows_of<const char>(tensor, range, head, 0),
                     .elements = p.key_dim,
                     .buffer = scratch + buffer,
                     .zeros = zeros};
  };
  ChunkKeys keys;
  keys.q = source(p.q, range.head, at.q_rows);
  keys.k = source(p.k, range.kv_head, at.k_rows);
  keys.gk = source(p.gk, range.head, at.gk_rows);
  keys.g = rows_of<const char>(p.g, range, range.head, 0);
  keys.gamma = gamma_of(p, range);
  keys.balance = balance_of(p, range, 1.0F);
  keys.scale = p.scale;
  keys.has_decay = has_key_decay(p);
  keys.chunk = tiling.chunk;
  keys.channels = p.key_dim;
  keys.padded = round_up_to_panels(p.key_dim);
  keys.reads = panels_of(scratch + at.reads, tiling.chunk);
  keys.relative = panels_of(scratch + at.relative, tiling.chunk);
  keys.writes = panels_of(scratch + at.writes, tiling.chunk);
  keys.from_start = scratch + at.from_start;
  keys.to_end = scratch + at.to_end;
  keys.decays = scratch + at.key_decays;
  keys.carries = scratch + at.key_carries;
  keys.log_sums = scratch + at.key_log_sums;
  keys.channel_from_start = scratch + at.key_from_start;
  keys.block_decays = scratch + at.block_decays;
  return keys;
}

inline ChunkValues chunk_values(const Tiling& tiling, const ForwardParams& p,
                                const TaskRange& range, float* scratch) {
  const Scratch& at = tiling.scratch;
  ChunkValues values;
  values.columns = columns_of(tiling, p, range);
  values.padded = round_up_to_lanes(values.columns);
  values.chunk = tiling.chunk;
  values.v = {.rows = rows_of<const char>(p.v, range, range.kv_head, range.column),
              .elements = values.columns,
              .buffer = scratch + at.v_rows,
              .zeros = scratch + at.zeros};
  values.gv = {.rows = rows_of<const char>(p.gv, range, range.head, range.column),
               .elements = values.columns,
               .buffer = scratch + at.gv_rows,
               .zeros = scratch + at.zeros};
  values.balance = balance_of(p, range, -1.0F);
  values.o = rows_of<char>(p.o, range, range.head, range.column);
  values.rows = scratch + at.state + round_up_to_panels(p.key_dim) * values.padded;
  values.o_rows = scratch + at.o_rows;
  values.decays = scratch + at.value_decays;
  values.carries = scratch + at.value_carries;
  return values;
}

inline ChunkTask chunk_task(const Tiling& tiling, const ForwardParams& p, const TaskRange& range,
                            const SegmentStates& states, float* scratch) {
  ChunkTask task;
  task.tokens = range.tokens;
  task.stream = tiling.stream;
  task.keys = chunk_keys(tiling, p, range, scratch);
  task.values = chunk_values(tiling, p, range, scratch);
  task.initial = states.initial;
  task.final = states.final;
  task.state = scratch + tiling.scratch.state;
  task.pairs = chunk_pairs(tiling, p, task.values.padded, scratch);
  return task;
}

// ---- the state ----

inline BlockRange whole_tile(const ChunkTask& task) {
  return {.first = 0,
          .count = task.values.columns,
          .vectors = static_cast<int>(task.values.padded / kLanes)};
}

inline void read_state(const ChunkTask& task) {
  const std::int64_t width = task.values.padded;
  for (std::int64_t i = task.keys.channels * width; i < task.keys.padded * width; i += kLanes) {
    store(task.state + i, F32{});
  }
  if (!task.initial.data || task.initial.value_stride != 1) {
    return read_block(task.initial, task.keys.channels, whole_tile(task), task.state);
  }
  for (std::int64_t row = 0; row < task.keys.channels; ++row) {
    const float* const source = task.initial.data + row * task.initial.key_stride;
    widen_row(StorageType::kF32, reinterpret_cast<const char*>(source), task.values.columns,
              task.state + row * width);
  }
}

inline void write_state(const ChunkTask& task) {
  if (!task.final.data) return;
  if (task.final.value_stride != 1) {
    return write_block(task.final, task.keys.channels, whole_tile(task), task.state);
  }
  for (std::int64_t row = 0; row < task.keys.channels; ++row) {
    float* const target = task.final.data + row * task.final.key_stride;
    narrow_row(StorageType::kF32, task.state + row * task.values.padded, task.values.columns,
               reinterpret_cast<char*>(target));
  }
}

// ---- a chunk ----

// Where a chunk's o is made: in the caller's rows, or in scratch memory.
struct OutputTarget {
  float* data = nullptr;
  std::int64_t step = 0;
  bool is_scratch = false;
};

inline OutputTarget output_target(const ChunkTask& task, std::int64_t token, std::int64_t present) {
  const ChunkValues& values = task.values;
  if (!task.stream && present == values.chunk && is_direct(values.o.type, values.columns)) {
    // An fp32 tensor holds floats, aligned as such.
    return {.data = reinterpret_cast<float*>(values.o.row(token)),
            .step = values.o.step / std::int64_t{sizeof(float)}};
  }
  return {.data = values.o_rows, .step = values.padded, .is_scratch = true};
}

// o and the new state from the prepared keys and values.
template <bool kColumnDecay>
void multiply_chunk(const ChunkTask& task, std::int64_t token, std::int64_t present,
                    const OutputTarget& o) {
  const ChunkKeys& keys = task.keys;
  const ChunkValues& values = task.values;
  LineFetcher fetcher;
  const bool fetches = task.fetch_list && token + 2 * keys.chunk <= task.tokens;
  TokensProduct read{.panels = keys.reads,
                     .chunk = keys.chunk,
                     .depth = keys.padded,
                     .causal = !kColumnDecay,
                     .row_factor = keys.has_shared_decay() ? keys.from_start : nullptr,
                     .matrix = task.state,
                     .matrix_step = values.padded,
                     .target = o.data,
                     .target_step = o.step,
                     .columns = values.padded};
  ChannelsProduct update{.panels = keys.writes,
                         .channels = keys.padded,
                         .depth = keys.chunk,
                         .matrix = values.rows,
                         .matrix_step = values.padded,
                         .target = task.state,
                         .target_step = values.padded,
                         .columns = values.padded,
                         .row_scale = keys.decays,
                         .column_scale = values.decays};
  pair_operands(keys, task.pairs, read, update);
  // With a decay of their own, values are paired once they have decayed.
  if constexpr (!kColumnDecay) {
    pair_values(values.rows, values.chunk, values.padded, task.pairs);
  }
  if (fetches) {
    fetcher = task.fetch_list->fetcher(read.fetch_steps() + update.fetch_steps());
    read.fetcher = update.fetcher = &fetcher;
  }
  multiply_tokens<Start::kZero>(read);
  if constexpr (kColumnDecay) {
    ChunkRows gv;
    chunk_rows(values.gv, token, present, keys.chunk, gv);
    TokenLogs logs;
    token_logs({}, 0.0F, token, present, keys.chunk, logs);
    balance_logs(values.balance, token, present, logs);
    if (values.balance.gv.data) keep_padding(values.gv, logs.log, present);
    decay_values(values, gv, logs, keys.scores(), o.data, o.step);
    pair_values(values.rows, values.chunk, values.padded, task.pairs);
  }
  if (keys.has_decay) {
    multiply_channels<kColumnDecay ? Start::kScaleBoth : Start::kScaleRows>(update);
  } else {
    multiply_channels<kColumnDecay ? Start::kScaleColumns : Start::kAdd>(update);
  }
  if (fetches) task.fetch_list->next_chunk();
}

inline void run_chunk(const ChunkTask& task, std::int64_t token, std::int64_t present) {
  const ChunkValues& values = task.values;
  prepare_chunk_keys(task.keys, token, present);
  ChunkRows v;
  chunk_rows(values.v, token, present, values.chunk, v);
  pack_matrix(v, values.chunk, values.padded, values.rows);
  const OutputTarget o = output_target(task, token, present);
  if (values.gv.rows.data) {
    multiply_chunk<true>(task, token, present, o);
  } else {
    multiply_chunk<false>(task, token, present, o);
  }
  if (!o.is_scratch) return;
  for (std::int64_t t = 0; t < present; ++t) {
    write_row(values.o.type, o.data + t * o.step, values.columns, values.o.row(token + t),
              task.stream);
  }
}

inline void run_chunk_task(const Tiling& tiling, ChunkTask& task, const char** lines) {
  FetchList list(lines, 0, 0);
  if (tiling.prefetch && task.tokens > tiling.chunk) {
    list = fetch_list(task.keys, task.values, task.stream, tiling.chunk, lines);
    task.fetch_list = &list;
  }
  read_state(task);
  pair_state(task.state, task.keys.padded, task.values.padded, task.pairs);
  if (task.tokens > 0) reset_keys(task.keys);
  for (std::int64_t j = 0; j < task.values.padded; j += kLanes) {
    store(task.values.carries + j, F32{});
  }
  for (std::int64_t token = 0; token < task.tokens; token += tiling.chunk) {
    const std::int64_t left = task.tokens - token;
    run_chunk(task, token, left < tiling.chunk ? left : tiling.chunk);
  }
  write_state(task);
}

inline void run_chunk_tasks(const Tiling& tiling, const ForwardParams& params,
                            std::int64_t first_task, std::int64_t last_task, float* scratch) {
  const Scratch& at = tiling.scratch;
  for (std::int64_t i = at.zeros; i < at.size; i += kLanes) store(scratch + i, F32{});
  const char* lines[FetchList::kMaxLines];
  for (std::int64_t index = first_task; index < last_task; ++index) {
    const TaskRange sequence = task_range(tiling, params, index);
    const StagedState staged{scratch + at.staged, tiling.tile_v,
                             columns_of(tiling, params, sequence)};
    for_each_segment(params, sequence, staged,
                     [&](const TaskRange& range, const SegmentStates& states) {
                       ChunkTask task = chunk_task(tiling, params, range, states, scratch);
                       run_chunk_task(tiling, task, lines);
                     });
  }
  if (tiling.stream) streamed_writes_done();
}

inline Instance instance() { return {.run = run_chunk_tasks}; }

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk
