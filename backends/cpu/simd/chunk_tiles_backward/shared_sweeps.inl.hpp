// The two sweeps where all channels decay alike.
#pragma once

#include "tiles_task.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

// What rows of a recurrence are times: before their one rounding.
struct RowScales {
  float reads = 1.0F;
  float writes = 1.0F;
};

// Pairs are summed from the rows as they are: their products are in gradients of gates, too.
inline void pack_chunk(const TileRecurrence& of, const ChunkSpan& span, const RecurrenceRows& rows,
                       const TokenLogs& logs, const RowScales& scales) {
  const TileKeys& keys = of.keys;
  pack_queries(keys, span, rows.reads);
  pack_keys(keys, span, rows.writes);
  sum_pairs(keys, span);
  alignas(64) float of_token[kMaxChunk];
  alignas(64) float through[kMaxChunk];
  alignas(64) float behind[kMaxChunk];
  const F32 total = decays_of_tokens(logs, span.padded, of_token, through, behind, keys.carries);
  for (std::int64_t i = 0; i < keys.width; i += kLanes) store(keys.decays + i, total);
  for (std::int64_t t = 0; t < span.padded; ++t) {
    through[t] *= scales.reads;
    behind[t] *= scales.writes;
  }
  pack_values(of, span, rows.values);
  join_pairs<true>(keys, span, of_token, scales.reads * scales.writes);
  if (keys.has_decay) pack_queries(keys, span, ScaledRows{rows.reads, through});
  pack_writes(keys, span, ScaledRows{rows.writes, behind});
}

inline ChunkDecay decay_of_chunk(const TileRecurrence& of) {
  return {.before = {}, .after = {.rows = of.keys.has_decay ? of.keys.decays : nullptr}};
}

// ---- with the sequence ----

inline void forward_tiles(BackwardTiles& task, std::int64_t index, LineFetcher fetcher) {
  const ChunkSpan span = task.span(index);
  ChunkHalves rows;
  chunk_halves(task, index, false, rows);
  TokenLogs logs;
  token_logs(task.g, task.gamma, span.token, span.present, span.padded, logs);
  const TileRecurrence& of = task.to_dq;
  // Reads that have to be packed once more with their decays take the scale with them.
  const RowScales scales{.reads = task.has_decay ? task.scale : 1.0F};
  pack_chunk(of, span, {.reads = rows.d_o, .writes = rows.v, .values = rows.k}, logs, scales);
  const RecurrenceOutputs dq{.rows = task.dq,
                             .columns = of.state.columns,
                             .stream = task.stream,
                             .scale = task.has_decay ? 1.0F : task.scale};
  run_recurrence(of, span, decay_of_chunk(of), task.has_decay, task.outputs, fetcher,
                 [&](const RecurrenceResults& results) {
                   write_results(dq, span, results);
                   if (task.has_decay) add_dots_of_state(results, span, rows.q, task.partial);
                 });
  if (task.has_decay) add_partial_dots(task.partial, span.padded, task.dots + span.token);
}

inline void keep_state(const TileState& state, float* anchor) {
  const std::int64_t size = state.row_tiles * state.column_tiles * kTileFloats;
  for (std::int64_t i = 0; i < size; i += kLanes) store(anchor + i, load(state.floats.data + i));
}

// Transposed.
inline void read_initial(const BackwardTiles& task) {
  read_state(task.to_dq.state, {.data = task.initial.data,
                                .key_stride = task.initial.value_stride,
                                .value_stride = task.initial.key_stride});
}

inline void sweep_with(BackwardTiles& task, const char** lines) {
  zero_floats(task.to_dq.keys.carries, kLanes);
  read_initial(task);
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
  token_logs(task.g, task.gamma, span.token, span.present, span.padded, logs);
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
  token_logs(task.g, task.gamma, span.token + 1, given, span.padded, next);
  for (std::int64_t t = 0; t < span.padded; ++t) {
    logs.log[t] = t < span.present ? next.log[span.present - 1 - t] : 0.0F;
  }
}

alignas(64) inline constexpr float kLaneNumbers[] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                     8, 9, 10, 11, 12, 13, 14, 15};

// steps[t] = sum_{s > t} a[s, t] b[s, t] - sum_{s < t} a[t, s] b[t, s], of sums of pairs against
// the sequence: what the chunk's own add to a gate's gradient from the token behind it to this one.
[[gnu::noinline]] inline void step_tile_pairs(const TileMatrix& a, const TileMatrix& b,
                                              const ChunkSpan& span, float* steps) {
  zero_floats(steps, span.padded);
  for (std::int64_t block = 0; block < span.blocks(); ++block) {
    F32 written[kTileRows] = {};
    for (std::int64_t source = 0; source <= block; ++source) {
      const float* const left = a.at(block, source);
      const float* const right = b.at(block, source);
      F32 read{};
#pragma GCC unroll 16
      for (std::int64_t t = 0; t < kTileRows; ++t) {
        const F32 product = load(left + t * kLanes) * load(right + t * kLanes);
        const bool is_other = source < block;
        const F32 other = is_other || load(kLaneNumbers) < static_cast<float>(t) ? product : F32{};
        written[t] += other;
        read += other;
      }
      float* const step = steps + source * kTileRows;
      store(step, load(step) + read);
    }
    alignas(64) float sums[kTileRows];
    sum_lanes<kTileRows>(written, sums);
    float* const step = steps + block * kTileRows;
    store(step, load(step) - load(sums));
  }
}

// What a chunk's tokens add to the gradients of its gates, against the sequence.
struct GateTerms {
  alignas(64) float written[kMaxChunk];  // k dk of the gradient behind the chunk
  alignas(64) float steps[kMaxChunk];    // of its own pairs
};

// The gradient of a gate is what passes it: from the state before the chunk to tokens, from tokens
// to what is behind the chunk, from one token to another, and past all of them. The last is
// <S, D> of the states on both sides where the one before was kept; else what passes the end of the
// chunk but for what its tokens write, a small difference that is off by the rounding of them all.
// `task.gate` is that of the two which `is_past` says, and becomes what passes the chunk's start.
inline void gate_gradients(BackwardTiles& task, const ChunkSpan& span, const float* decays,
                           const GateTerms& terms, bool is_past) {
  double of_states = task.gate;
  for (std::int64_t t = 0; is_past && t < span.present; ++t) {
    of_states += static_cast<double>(terms.written[t]);
  }
  double of_pairs = 0.0;
  for (std::int64_t t = span.present; t-- > 0;) {
    const std::int64_t token = span.token + t;
    const std::int64_t against = span.present - 1 - t;
    of_states +=
        static_cast<double>(task.dots[token]) - static_cast<double>(terms.written[against]);
    of_pairs += static_cast<double>(terms.steps[against]);
    if (decays[t] == 0.0F) of_states = of_pairs = 0.0;
    const double gradient = of_states + of_pairs;
    if (task.dgamma) *task.dgamma += gradient;
    if (!task.dg.data) continue;
    const auto rounded = static_cast<float>(gradient);
    __builtin_memcpy(task.dg.row(token), &rounded, sizeof(rounded));
  }
  task.gate = of_states;
}

// The state before a chunk, or null where it was not kept.
inline const float* state_before(const BackwardTiles& task, const ChunkSpan& span) {
  if (span.token > 0) return task.anchor_at(span.token);
  read_initial(task);  // that of dq has done its work
  return task.to_dq.state.floats.data;
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
  const TileRecurrence& to_dk = task.to_dk;
  const TileRecurrence& to_dv = task.to_dv;
  const bool has_gates = task.has_decay;
  alignas(64) float decays[kMaxChunk];
  GateTerms terms;
  pack_chunk(to_dk, against, {.reads = rows.v, .writes = rows.d_o, .values = rows.q}, logs,
             {.writes = task.scale});
  const float* const before = has_gates ? state_before(task, span) : nullptr;
  if (before) {
    token_decays(task, span, decays);
    task.gate = static_cast<double>(decays[0] * to_dk.keys.decays[0]) *
                static_cast<double>(sum_products(to_dk.state, before));
  }
  const RecurrenceOutputs dk{.rows = from_the_end(task.dk, task.tokens),
                             .columns = to_dk.state.columns,
                             .stream = task.stream,
                             .group = task.dk_sums};
  run_recurrence(to_dk, against, decay_of_chunk(to_dk), has_gates, task.outputs, fetcher,
                 [&](const RecurrenceResults& results) {
                   write_results(dk, against, results);
                   if (has_gates) add_dots_of_state(results, against, rows.k, task.partial);
                 });
  if (has_gates) add_partial_dots(task.partial, span.padded, terms.written);
  pack_chunk(to_dv, against, {.reads = rows.k, .writes = rows.q, .values = rows.d_o}, logs,
             {.writes = task.scale});
  if (has_gates) {
    step_tile_pairs(to_dk.keys.sums, to_dv.keys.sums, span, terms.steps);
    if (!before) token_decays(task, span, decays);
    gate_gradients(task, span, decays, terms, before != nullptr);
  }
  const RecurrenceOutputs dv{.rows = from_the_end(task.dv, task.tokens),
                             .columns = to_dv.state.columns,
                             .stream = task.stream,
                             .group = task.dv_sums};
  run_recurrence(to_dv, against, decay_of_chunk(to_dv), false, task.outputs, fetcher,
                 [&](const RecurrenceResults& results) { write_results(dv, against, results); });
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
  if (task.dgamma) *task.dgamma = 0.0;
  if (task.has_decay) {
    task.gate = static_cast<double>(sum_products(task.to_dk.state, task.to_dq.state.floats.data));
  }
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
