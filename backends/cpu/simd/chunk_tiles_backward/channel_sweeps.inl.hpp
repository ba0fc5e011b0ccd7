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

// Decays the states by all that they are still to decay by. The decays of spans around centers are
// too small to be multiplied with what is left to do: states bear the two one after the other.
inline void settle(const TileState& state, const StateDecay& decay) {
  for (std::int64_t column = 0; column < state.column_tiles * kLanes; column += kTileDepth) {
    decay_state(state, decay, column);
  }
}

inline void settle_state(const ChannelBackward& task) {
  settle(task.to_dq.state, {.columns = task.state_decay});
  fill_floats(task.state_decay, task.inputs.width, 1.0F);
}

inline void settle_gradients(const ChannelBackward& task) {
  settle(task.to_dk.state, {.columns = task.gradient_decay});
  settle(task.to_dv.state, {.rows = task.gradient_decay});
  fill_floats(task.gradient_decay, task.inputs.width, 1.0F);
}

// ---- with the sequence ----

// A result, and what it adds to the gradient of a gate: q dq or k dk.
struct ChannelResult {
  F32 gradient;
  F32 term;
};

// 16 channels from `channel` on of a token's row: times `factor` for the gradient, times q~ or k~
// for the gate's. In an exact span the sums are those of the state alone.
template <bool kExact>
[[gnu::always_inline]] inline ChannelResult finish_channels(const float* sums, const float* factor,
                                                            F32 decayed, const float* own,
                                                            F32 given) {
  const F32 sum = load(sums);
  if constexpr (!kExact) return {.gradient = sum * load(factor), .term = sum * decayed};
  return {.gradient = fma(sum, load(factor), load(own)),
          .term = fma(sum, decayed, load(own) * given)};
}

template <bool kExact>
[[gnu::noinline]] void write_dq(const ChannelBackward& task, const ChannelSpan& at,
                                const RecurrenceResults& results) {
  const std::int64_t column = results.at.column;
  const std::int64_t width = at.rows.width;
  const ResultSizes sizes = sizes_of(results, at.span, task.inputs.gk.elements);
  for (std::int64_t t = 0; t < sizes.rows; ++t) {
    const std::int64_t row = results.at.token + t;
    const std::int64_t token = at.span.token + row;
    const float* const sums = result_row(kExact ? results.of_state : results.sums, t);
    F32 gradient[2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const std::int64_t i = column + half * kLanes;
      const ChannelResult result = finish_channels<kExact>(
          sums + half * kTileFloats, at.rows.decays + row * width + i, at.q.vector(row, i),
          at.exact.own + row * width + i, kExact ? at.exact.q.vector(row, i) : F32{});
      store(task.terms + token * width + i, result.term);
      gradient[half] = result.gradient;
    }
    write_output(gradient[0], gradient[1], sizes.columns, task.dq.row(token) + 2 * column,
                 task.stream);
  }
}

inline void forward_span(const ChannelBackward& task, const ChannelSpan& at, LineFetcher& fetcher) {
  const TileRecurrence& of = task.to_dq;
  if (at.is_cut) settle_state(task);
  multiply_floats(task.state_decay, at.rows.first, at.rows.width);
  pack_span(of, at.span, {.reads = at.d_o, .writes = at.v, .values = at.k});
  if (at.is_exact) {
    sum_own_exactly(of.keys.sums.data, at.exact.k, at.exact.decays, at.rows.width, at.exact.own);
    run_recurrence(of, at.span,
                   {.before = {.columns = task.state_decay}, .after = {.columns = at.rows.total}},
                   true, task.outputs, fetcher,
                   [&](const RecurrenceResults& results) { write_dq<true>(task, at, results); });
    return fill_floats(task.state_decay, at.rows.width, 1.0F);
  }
  run_recurrence(of, at.span, {.before = {.columns = task.state_decay}}, false, task.outputs,
                 fetcher,
                 [&](const RecurrenceResults& results) { write_dq<false>(task, at, results); });
  copy_floats(at.rows.total, at.rows.width, task.state_decay);
  if (at.is_cut) settle_state(task);
}

inline void forward_channel_chunk(const ChannelBackward& task, std::int64_t index,
                                  LineFetcher fetcher) {
  ChannelChunk chunk;
  channel_chunk(task, index, false, chunk);
  for (std::int64_t i = 0; i < chunk.spans.count; ++i) {
    ChannelSpan at;
    channel_span(task, chunk, i, at);
    forward_span(task, at, fetcher);
  }
}

inline void sweep_channels_with(const ChannelBackward& task, const char** lines) {
  const std::int64_t width = task.inputs.width;
  fill_floats(task.state_decay, width, 1.0F);
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
template <bool kExact>
[[gnu::noinline]] void write_dk(const ChannelBackward& task, const ChannelSpan& at,
                                const RecurrenceResults& results) {
  const std::int64_t column = results.at.column;
  const std::int64_t width = at.rows.width;
  const ResultSizes sizes = sizes_of(results, at.span, task.inputs.gk.elements);
  F32 gate[2] = {load(task.gates + column), load(task.gates + column + kLanes)};
  for (std::int64_t t = 0; t < sizes.rows; ++t) {
    const std::int64_t against = results.at.token + t;
    const std::int64_t row = at.span.present - 1 - against;
    const std::int64_t token = at.span.token + row;
    const float* const sums = result_row(kExact ? results.of_state : results.sums, t);
    F32 gradient[2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const std::int64_t i = column + half * kLanes;
      const ChannelResult result = finish_channels<kExact>(
          sums + half * kTileFloats, at.rows.inverses + row * width + i, at.k.vector(row, i),
          at.exact.own + against * width + i, kExact ? at.exact.k.vector(row, i) : F32{});
      gradient[half] = result.gradient;
      gate[half] += load(task.terms + token * width + i) - result.term;
      if (!kExact && row > 0) continue;
      // A channel that a token resets has no gradient there, whatever the terms round to.
      const float* const decay = kExact ? at.exact.decays + row * width : at.rows.first;
      gate[half] = load(decay + i) == F32{} ? F32{} : gate[half];
    }
    if (add_to_group(task.dk_sums, token, column, gradient[0], gradient[1])) {
      write_output(gradient[0], gradient[1], sizes.columns, task.dk.row(token) + 2 * column,
                   task.stream);
    }
    write_gates(gate[0], gate[1], sizes.columns, task.dgk.row(token) + 4 * column, task.stream);
    if (!task.sums_gates()) continue;
    float* const partial = task.partial + row * kLanes;
    store(partial, (column == 0 ? F32{} : load(partial)) + gate[0] + gate[1]);
  }
  store(task.gates + column, gate[0]);
  store(task.gates + column + kLanes, gate[1]);
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

// A span's rows, in the order against the sequence.
struct ReversedSpan {
  ChunkSpan span;
  HalfRows q, k, v, d_o;
};

inline void reverse_span(const ChannelBackward& task, const ChannelSpan& at, ReversedSpan& to) {
  to.span = at.span;
  to.span.token = task.tokens - at.span.token - at.span.present;
  to.q = at.q;
  to.k = at.k;
  to.v = at.v;
  to.d_o = at.d_o;
  for (HalfRows* const rows : {&to.q, &to.k, &to.v, &to.d_o}) reverse_rows(*rows, at.span.present);
}

inline void make_dk(const ChannelBackward& task, const ChannelSpan& at, const ReversedSpan& against,
                    LineFetcher& fetcher) {
  const TileRecurrence& of = task.to_dk;
  pack_span(of, against.span, {.reads = against.v, .writes = against.d_o, .values = against.q});
  if (!at.is_exact) {
    return run_recurrence(
        of, against.span, {.before = {.columns = task.gradient_decay}}, false, task.outputs,
        fetcher, [&](const RecurrenceResults& results) { write_dk<false>(task, at, results); });
  }
  HalfRows q = at.exact.q;
  reverse_rows(q, at.span.present);
  sum_own_exactly(of.keys.sums.data, q, at.exact.against, at.rows.width, at.exact.own);
  run_recurrence(of, against.span,
                 {.before = {.columns = task.gradient_decay}, .after = {.columns = at.rows.total}},
                 true, task.outputs, fetcher,
                 [&](const RecurrenceResults& results) { write_dk<true>(task, at, results); });
}

inline void make_dv(const ChannelBackward& task, const ChannelSpan& at, const ReversedSpan& against,
                    LineFetcher& fetcher) {
  const TileRecurrence& of = task.to_dv;
  const RecurrenceOutputs dv{.rows = from_the_end(task.dv, task.tokens),
                             .columns = of.state.columns,
                             .stream = task.stream,
                             .group = task.dv_sums};
  pack_span(of, against.span, {.reads = against.k, .writes = against.q, .values = against.d_o});
  ChunkDecay decay{.before = {.rows = task.gradient_decay}};
  if (at.is_exact) {
    HalfRows q = at.exact.q, k = at.exact.k;
    reverse_rows(q, at.span.present);
    reverse_rows(k, at.span.present);
    pair_exactly(of.keys, against.span, k, q, at.exact.against);
    decay.after.rows = at.rows.total;
  }
  run_recurrence(
      of, against.span, decay, false, task.outputs, fetcher,
      [&](const RecurrenceResults& results) { write_results(dv, against.span, results); });
}

inline void backward_span(const ChannelBackward& task, const ChannelSpan& at,
                          LineFetcher& fetcher) {
  ReversedSpan against;
  reverse_span(task, at, against);
  if (at.is_cut) settle_gradients(task);
  if (!at.is_exact) multiply_floats(task.gradient_decay, at.rows.total, at.rows.width);
  make_dk(task, at, against, fetcher);
  make_dv(task, at, against, fetcher);
  copy_floats(at.rows.first, at.rows.width, task.gradient_decay);
  if (at.is_cut) settle_gradients(task);
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
  fill_floats(task.gradient_decay, width, 1.0F);
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
  settle_gradients(task);
  write_state(task.to_dv.state, task.dinitial);
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
