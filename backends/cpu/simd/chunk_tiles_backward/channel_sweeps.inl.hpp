// The two sweeps where the channels of K decay each on its own.
//
// With q~, k~, r and a_0 of a span as in channel_rows.inl.hpp, S before it and D, the gradient of
// the state behind it,
//
//   S := a_0 S        dq_t = r_t (scale do_t S' + sum_{s <= t} (scale do_t . v_s) k~_s)
//                     S := r_{n-1} (S + sum_t k~_t' v_t)
//   D := r_{n-1} D    dk_t = 1 / r_t (v_t D' + sum_{u >= t} (v_t . scale do_u) q~_u)
//                     dv_t = k~_t D + sum_{u >= t} (k~_t . q~_u) scale do_u
//                     D := a_0 (D + sum_t q~_t' scale do_t)
//
// The gradient of a gate is a sum over tokens of q dq - k dk (chunk_backward/chunk_gates.inl.hpp),
// in which pairs of tokens on the same side of it cancel. They do so exactly where both terms are
// made of the same roundings, so q dq is summed up as q~ (dq / r), and k dk as k~ (r dk).
#pragma once

#include "channel_task.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

inline void pack_span(const TileRecurrence& of, const ChunkSpan& span, const RecurrenceRows& rows) {
  prepare_shared_decay(of.keys, span, rows.reads, rows.writes, TokenLogs{});
  pack_values(of, span, rows.values);
}

// ---- with the sequence ----

[[gnu::noinline]] inline void write_dq(const ChannelBackward& task, const ChannelSpan& at,
                                       const RecurrenceResults& results) {
  const OutputBlock& block = results.at;
  const std::int64_t width = at.rows.width;
  const ResultSizes sizes = sizes_of(results, at.span, task.inputs.gk.elements);
  for (std::int64_t t = 0; t < sizes.rows; ++t) {
    const std::int64_t row = block.token + t;
    const std::int64_t token = at.span.token + row;
    const float* const sums = result_row(results.sums, t);
    const float* const decay = at.rows.decays + row * width + block.column;
    float* const term = task.terms + token * width + block.column;
    const F32 first = load(sums);
    const F32 second = load(sums + kTileFloats);
    store(term, first * at.q.vector(row, block.column));
    store(term + kLanes, second * at.q.vector(row, block.column + kLanes));
    write_output(first * load(decay), second * load(decay + kLanes), sizes.columns,
                 task.dq.row(token) + 2 * block.column, task.stream);
  }
}

inline void forward_channel_chunk(const ChannelBackward& task, std::int64_t index,
                                  LineFetcher fetcher) {
  ChannelChunk chunk;
  channel_chunk(task, index, false, chunk);
  for (std::int64_t i = 0; i < chunk.spans.count; ++i) {
    ChannelSpan at;
    channel_span(task, chunk, i, at);
    multiply_floats(task.state_decay, at.rows.first, at.rows.width);
    pack_span(task.to_dq, at.span, {.reads = at.d_o, .writes = at.v, .values = at.k});
    run_recurrence(task.to_dq, at.span, {.before = {.columns = task.state_decay}}, false,
                   task.outputs, fetcher,
                   [&](const RecurrenceResults& results) { write_dq(task, at, results); });
    copy_floats(at.rows.total, at.rows.width, task.state_decay);
  }
}

inline void sweep_channels_with(const ChannelBackward& task, const char** lines) {
  const std::int64_t width = task.inputs.width;
  for (std::int64_t i = 0; i < width; i += kLanes) store(task.state_decay + i, broadcast(1.0F));
  read_state(task.to_dq.state, {.data = task.initial.data,
                                .key_stride = task.initial.value_stride,
                                .value_stride = task.initial.key_stride});
  FetchList list(lines, task.chunk, task.chunk);
  if (task.tokens >= 2 * task.chunk) {
    for (const HalfSource* source : {&task.q, &task.k, &task.v, &task.d_o}) {
      list.add(source->rows, source->elements);
    }
    list.add(task.inputs.gk.rows, task.inputs.gk.elements);
    if (!task.stream) list.add(task.dq, task.q.elements);
  }
  for (std::int64_t index = 0; index < task.chunks(); ++index) {
    const std::int64_t token = index * task.chunk;
    if (float* const anchor = task.anchor_at(token)) {
      keep_decayed_state(task.to_dq.state, task.state_decay, anchor);
    }
    const bool fetches = token + 2 * task.chunk <= task.tokens;
    forward_channel_chunk(task, index,
                          fetches ? list.fetcher(task.to_dq.width() / kTileDepth) : LineFetcher{});
    if (fetches) list.next_chunk();
  }
}

// ---- against it ----

// dk and the gradients of gates; results are from the last token of the span on.
[[gnu::noinline]] inline void write_dk(const ChannelBackward& task, const ChannelSpan& at,
                                       const RecurrenceResults& results) {
  const OutputBlock& block = results.at;
  const std::int64_t width = at.rows.width;
  const ResultSizes sizes = sizes_of(results, at.span, task.inputs.gk.elements);
  float* const gates = task.gates + block.column;
  F32 gate[2] = {load(gates), load(gates + kLanes)};
  for (std::int64_t t = 0; t < sizes.rows; ++t) {
    const std::int64_t row = at.span.present - 1 - block.token - t;
    const std::int64_t token = at.span.token + row;
    const float* const inverse = at.rows.inverses + row * width + block.column;
    const float* const term = task.terms + token * width + block.column;
    F32 sum[2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      sum[half] = load(result_row(results.sums, t) + half * kTileFloats);
      const std::int64_t i = half * kLanes;
      gate[half] += load(term + i) - sum[half] * at.k.vector(row, block.column + i);
      sum[half] *= load(inverse + i);
      if (row > 0) continue;
      gate[half] = load(at.rows.first + block.column + i) == F32{} ? F32{} : gate[half];
    }
    write_output(sum[0], sum[1], sizes.columns, task.dk.row(token) + 2 * block.column, task.stream);
    write_gates(gate[0], gate[1], sizes.columns, task.dgk.row(token) + 4 * block.column,
                task.stream);
    if (!task.sums_gates()) continue;
    float* const partial = task.partial + row * kLanes;
    const F32 before = block.column == 0 ? F32{} : load(partial);
    store(partial, before + gate[0] + gate[1]);
  }
  store(gates, gate[0]);
  store(gates + kLanes, gate[1]);
}

// Gradients of what all channels decay by.
inline void sum_gates(const ChannelBackward& task, const ChunkSpan& span) {
  alignas(64) float sums[kMaxChunk];
  add_partial_dots(task.partial, span.padded, sums);
  for (std::int64_t t = span.present; t-- > 0;) {
    if (task.dgamma) *task.dgamma += static_cast<double>(sums[t]);
    if (task.dg.data) __builtin_memcpy(task.dg.row(span.token + t), sums + t, sizeof(float));
  }
}

inline void backward_span(const ChannelBackward& task, ChannelSpan& at, LineFetcher& fetcher) {
  ChunkSpan against = at.span;
  against.token = task.tokens - at.span.token - at.span.present;
  HalfRows k = at.k;
  for (HalfRows* const rows : {&at.q, &k, &at.v, &at.d_o}) reverse_rows(*rows, at.span.present);
  multiply_floats(task.gradient_decay, at.rows.total, at.rows.width);
  pack_span(task.to_dk, against, {.reads = at.v, .writes = at.d_o, .values = at.q});
  run_recurrence(task.to_dk, against, {.before = {.columns = task.gradient_decay}}, false,
                 task.outputs, fetcher,
                 [&](const RecurrenceResults& results) { write_dk(task, at, results); });
  const RecurrenceOutputs dv{.rows = from_the_end(task.dv, task.tokens),
                             .columns = task.to_dv.state.columns,
                             .stream = task.stream};
  pack_span(task.to_dv, against, {.reads = k, .writes = at.q, .values = at.d_o});
  run_recurrence(task.to_dv, against, {.before = {.rows = task.gradient_decay}}, false,
                 task.outputs, fetcher,
                 [&](const RecurrenceResults& results) { write_results(dv, against, results); });
  copy_floats(at.rows.first, at.rows.width, task.gradient_decay);
  if (task.sums_gates()) sum_gates(task, at.span);
}

inline FetchList list_channels_against(const ChannelBackward& task, std::int64_t index,
                                       const char** lines) {
  FetchList list(lines, task.tokens - index * task.chunk, task.chunk);
  if (index <= task.first_kept()) {
    for (const HalfSource* source : {&task.q, &task.k, &task.v, &task.d_o}) {
      list.add(from_the_end(source->rows, task.tokens), source->elements);
    }
    list.add(from_the_end(task.inputs.gk.rows, task.tokens), task.inputs.gk.elements);
  }
  if (task.stream) return list;
  list.add(from_the_end(task.dk, task.tokens), task.k.elements);
  list.add(from_the_end(task.dv, task.tokens), task.v.elements);
  list.add(from_the_end(task.dgk, task.tokens), task.k.elements);
  return list;
}

inline void sweep_channels_against(const ChannelBackward& task, const char** lines) {
  const std::int64_t width = task.inputs.width;
  const TileState& gradient = task.to_dk.state;
  for (std::int64_t i = 0; i < width; i += kLanes) store(task.gradient_decay + i, broadcast(1.0F));
  read_state(gradient, {.data = task.dfinal.data,
                        .key_stride = task.dfinal.value_stride,
                        .value_stride = task.dfinal.key_stride});
  read_state(task.to_dv.state, task.dfinal);
  sum_product_columns(gradient, task.to_dq.state.floats.data, task.state_decay, task.gates);
  if (task.dgamma) *task.dgamma = 0.0;
  const std::int64_t steps = (task.to_dk.width() + task.to_dv.width()) / kTileDepth;
  FetchList list(lines, 0, 0);
  for (std::int64_t index = task.chunks() - 1; index >= 0; --index) {
    if (index > 0 && (index == task.chunks() - 1 || index == task.first_kept())) {
      list = list_channels_against(task, index, lines);
    }
    LineFetcher fetcher = index > 0 ? list.fetcher(steps) : LineFetcher{};
    ChannelChunk chunk;
    channel_chunk(task, index, index >= task.first_kept(), chunk);
    for (std::int64_t i = chunk.spans.count; i-- > 0;) {
      ChannelSpan at;
      channel_span(task, chunk, i, at);
      backward_span(task, at, fetcher);
    }
    if (const float* const anchor = task.anchor_at(chunk.span.token)) {
      sum_product_columns(gradient, anchor, task.gradient_decay, task.gates);
    }
    if (index > 0) list.next_chunk();
  }
  for (std::int64_t column = 0; column < task.to_dv.width(); column += kTileDepth) {
    decay_state(task.to_dv.state, {.rows = task.gradient_decay}, column);
  }
  write_state(task.to_dv.state, task.dinitial);
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
