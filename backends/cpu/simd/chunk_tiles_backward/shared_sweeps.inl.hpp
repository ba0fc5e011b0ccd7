// The two sweeps where all channels decay alike.
#pragma once

#include "tiles_task.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

// ---- with the sequence ----

inline void forward_tiles(BackwardTiles& task, std::int64_t index, LineFetcher fetcher) {
  const ChunkSpan span = task.span(index);
  ChunkHalves rows;
  chunk_halves(task, index, false, rows);
  TokenLogs logs;
  token_logs(task.g, 0.0F, span.token, span.present, span.padded, logs);
  run_recurrence(task.to_dq, span, {.reads = rows.d_o, .writes = rows.v, .values = rows.k}, logs,
                 {.rows = task.dq,
                  .columns = task.to_dq.state.columns,
                  .stream = task.stream,
                  .factors = task.has_decay ? &rows.q : nullptr,
                  .partial = task.partial},
                 task.outputs, fetcher);
  if (task.has_decay) add_partial_dots(task.partial, span.padded, task.dots + span.token);
}

inline void keep_state(const TileState& state, float* anchor) {
  const std::int64_t size = state.row_tiles * state.column_tiles * kTileFloats;
  for (std::int64_t i = 0; i < size; i += kLanes) store(anchor + i, load(state.floats.data + i));
}

inline void sweep_with(BackwardTiles& task, const char** lines) {
  zero_floats(task.to_dq.keys.carries, kLanes);
  read_state(task.to_dq.state, {.data = task.initial.data,
                                .key_stride = task.initial.value_stride,
                                .value_stride = task.initial.key_stride});
  FetchList list(lines, task.chunk, task.chunk);
  if (task.tokens >= 2 * task.chunk) {
    for (const HalfSource* source : {&task.q, &task.k, &task.v, &task.d_o}) {
      list.add(source->rows, source->elements);
    }
    if (!task.stream) list.add(task.dq, task.q.elements);
  }
  for (std::int64_t index = 0; index < task.chunks(); ++index) {
    const std::int64_t token = index * task.chunk;
    if (float* const anchor = task.anchor_at(token)) keep_state(task.to_dq.state, anchor);
    const bool fetches = token + 2 * task.chunk <= task.tokens;
    forward_tiles(task, index,
                  fetches ? list.fetcher(task.to_dq.width() / kTileDepth) : LineFetcher{});
    if (fetches) list.next_chunk();
  }
}

// ---- against it ----

// The sum of all products of two states' elements.
[[gnu::noinline]] inline float sum_products(const TileState& a, const float* b) {
  const std::int64_t size = a.row_tiles * a.column_tiles * kTileFloats;
  F32 sums[4] = {};
  for (std::int64_t i = 0; i < size; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const std::int64_t at = i + j * kLanes;
      sums[j] = fma(load(a.floats.data + at), load(b + at), sums[j]);
    }
  }
  F32 sum[1] = {(sums[0] + sums[1]) + (sums[2] + sums[3])};
  alignas(64) float total[kLanes];
  sum_lanes<1>(sum, total);
  return total[0];
}

// Decays of a chunk's tokens, in their order.
inline void token_decays(const BackwardTiles& task, const ChunkSpan& span, float* decays) {
  TokenLogs logs;
  token_logs(task.g, 0.0F, span.token, span.present, span.padded, logs);
  for (std::int64_t t = 0; t < span.padded; t += kLanes) {
    F32 decay[1] = {load(logs.log + t)};
    exp_each(decay);
    store(decays + t, decay[0]);
  }
}

// Between a token and the one after it D decays by that one's; the last token's is as it was given.
inline void logs_against(const BackwardTiles& task, const ChunkSpan& span, TokenLogs& logs) {
  const std::int64_t behind = task.tokens - span.token - 1;
  const std::int64_t given = behind < span.present ? behind : span.present;
  TokenLogs next;
  token_logs(task.g, 0.0F, span.token + 1, given, span.padded, next);
  for (std::int64_t t = 0; t < span.padded; ++t) {
    logs.log[t] = t < span.present ? next.log[span.present - 1 - t] : 0.0F;
  }
}

// `dots` are k dk, against the sequence.
inline void gate_gradients(BackwardTiles& task, const ChunkSpan& span, const float* decays,
                           const float* dots) {
  for (std::int64_t t = span.present; t-- > 0;) {
    const std::int64_t token = span.token + t;
    task.gate += task.dots[token] - dots[span.present - 1 - t];
    if (decays[t] == 0.0F) task.gate = 0.0F;
    if (task.dg.data) __builtin_memcpy(task.dg.row(token), &task.gate, sizeof(float));
  }
}

inline void backward_tiles_chunk(BackwardTiles& task, std::int64_t index, LineFetcher fetcher) {
  const ChunkSpan span = task.span(index);
  ChunkSpan against = span;
  against.token = task.tokens - span.token - span.present;
  ChunkHalves rows;
  chunk_halves(task, index, index >= task.first_kept(), rows);
  for (HalfRows* of : {&rows.q, &rows.k, &rows.v, &rows.d_o}) {
    if (of->of[0] != task.q.zeros) reverse_rows(*of, span.present);
  }
  TokenLogs logs;
  logs_against(task, span, logs);
  run_recurrence(task.to_dk, against, {.reads = rows.v, .writes = rows.d_o, .values = rows.q}, logs,
                 {.rows = from_the_end(task.dk, task.tokens),
                  .columns = task.to_dk.state.columns,
                  .stream = task.stream,
                  .factors = task.has_decay ? &rows.k : nullptr,
                  .partial = task.partial},
                 task.outputs, fetcher);
  if (task.has_decay) {
    alignas(64) float decays[kMaxChunk];
    alignas(64) float dots[kMaxChunk];
    token_decays(task, span, decays);
    add_partial_dots(task.partial, span.padded, dots);
    gate_gradients(task, span, decays, dots);
    if (const float* const anchor = task.anchor_at(span.token)) {
      task.gate = decays[0] == 0.0F ? 0.0F : decays[0] * sum_products(task.to_dk.state, anchor);
    }
  }
  run_recurrence(task.to_dv, against, {.reads = rows.k, .writes = rows.q, .values = rows.d_o}, logs,
                 {.rows = from_the_end(task.dv, task.tokens),
                  .columns = task.to_dv.state.columns,
                  .stream = task.stream},
                 task.outputs, fetcher);
}

inline FetchList list_against(const BackwardTiles& task, std::int64_t index, const char** lines) {
  FetchList list(lines, task.tokens - index * task.chunk, task.chunk);
  if (!task.stream) {
    list.add(from_the_end(task.dk, task.tokens), task.k.elements);
    list.add(from_the_end(task.dv, task.tokens), task.v.elements);
  }
  if (index > task.first_kept()) return list;
  for (const HalfSource* source : {&task.q, &task.k, &task.v, &task.d_o}) {
    list.add(from_the_end(source->rows, task.tokens), source->elements);
  }
  return list;
}

inline void sweep_against(BackwardTiles& task, const char** lines) {
  zero_floats(task.to_dk.keys.carries, kLanes);
  zero_floats(task.to_dv.keys.carries, kLanes);
  read_state(task.to_dk.state, {.data = task.dfinal.data,
                                .key_stride = task.dfinal.value_stride,
                                .value_stride = task.dfinal.key_stride});
  read_state(task.to_dv.state, task.dfinal);
  if (task.has_decay) task.gate = sum_products(task.to_dk.state, task.to_dq.state.floats.data);
  const std::int64_t steps = (task.to_dk.width() + task.to_dv.width()) / kTileDepth;
  FetchList list(lines, 0, 0);
  for (std::int64_t index = task.chunks() - 1; index >= 0; --index) {
    if (index > 0 && (index == task.chunks() - 1 || index == task.first_kept())) {
      list = list_against(task, index, lines);
    }
    backward_tiles_chunk(task, index, index > 0 ? list.fetcher(steps) : LineFetcher{});
    if (index > 0) list.next_chunk();
  }
  if (task.has_decay && task.tokens > 0) {
    alignas(64) float decays[kMaxChunk];
    token_decays(task, task.span(0), decays);
    for (std::int64_t i = 0; i < task.to_dv.keys.width; ++i) task.to_dv.keys.decays[i] = decays[0];
    for (std::int64_t column = 0; column < task.to_dv.width(); column += kTileDepth) {
      decay_state(task.to_dv.state, {.rows = task.to_dv.keys.decays}, column);
    }
  }
  write_state(task.to_dv.state, task.dinitial);
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
