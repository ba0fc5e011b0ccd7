// The chunked backward kernel on tile registers, for the decays g, that all channels share, or
// none.
//
// Each gradient is a linear recurrence of its own, which tile_recurrence.inl.hpp runs. With
// o_t = scale q_t S_t, S the state, D the gradient of the loss with respect to it, and a_t the
// decay of token t,
//
//   dq_t = scale do_t S_t'    S_t = a_t S_{t-1} + k_t' v_t          with the sequence
//   dk_t = v_t D_t'           D_t = a_{t+1} D_{t+1} + scale q_t' do_t   against it
//   dv_t = k_t D_t
//
// so S is kept transposed, and D both ways: a product reads its state by the channels it sums over.
//
// Two sweeps over the chunks of a head. The first copies the rows and makes dq; where there is a
// gate it also leaves the sums q_t . dq_t, and S every few chunks. The second makes dk and dv, and
// from k_t . dk_t and <S, D> the gradients of the gates, as chunk_backward/chunk_gates.inl.hpp has
// it. All of these are fp32 sums taken before anything is rounded.
#pragma once

#include "tile_recurrence.inl.hpp"
#include "tiles_backward_params.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

struct BackwardTiles {
  std::int64_t tokens = 0;
  std::int64_t chunk = 0;
  std::int64_t segment_tokens = 0;
  std::int64_t kept_chunks = 0;
  HalfSource q, k, v, d_o;  // `copies` of the first chunk
  std::int64_t copies_size = 0;
  OutputRows dq, dk, dv, dg;
  InputRows g;
  bool has_decay = false;
  bool stream = false;
  TileRecurrence to_dq, to_dk, to_dv;
  StateView<const float*> initial, dfinal;
  StateView<float*> dinitial;
  float* outputs = nullptr;
  float* partial = nullptr;
  float* dots = nullptr;
  float* anchors = nullptr;
  float gate = 0.0F;  // the gradient at the token at hand

  std::int64_t chunks() const { return (tokens + chunk - 1) / chunk; }
  std::int64_t state_size() const {
    return to_dq.state.row_tiles * to_dq.state.column_tiles * kTileFloats;
  }
  // Chunks from this one on stay copied from the first sweep to the second.
  std::int64_t first_kept() const { return chunks() > kept_chunks ? chunks() - kept_chunks : 0; }

  ChunkSpan span(std::int64_t index) const {
    const std::int64_t left = tokens - index * chunk;
    const std::int64_t present = left < chunk ? left : chunk;
    return {.token = index * chunk,
            .present = present,
            .padded = (present + kTileDepth - 1) / kTileDepth * kTileDepth};
  }
  // The state that is kept before the chunk at `token`, or null.
  float* anchor_at(std::int64_t token) const {
    if (!has_decay || token == 0 || token % segment_tokens != 0) return nullptr;
    return anchors + (token / segment_tokens - 1) * state_size();
  }
};

// ---- making a task ----

struct RecurrenceSizes {
  std::int64_t channels;  // of the reads
  std::int64_t columns;
};

inline TileRecurrence tile_recurrence(const TilesBackwardParams& p, const RecurrenceSizes& sizes,
                                      const TilesBackwardScratch::State& at, bool has_decay,
                                      float* scratch) {
  const TilesBackwardScratch& shared = p.scratch;
  const auto padded = [](std::int64_t count) {
    return (count + kTileDepth - 1) / kTileDepth * kTileDepth;
  };
  TileRecurrence made;
  TileKeys& keys = made.keys;
  keys.has_decay = has_decay;
  keys.channels = sizes.channels;
  keys.width = padded(sizes.channels);
  const std::int64_t tokens_deep = p.chunk / kTileDepth;
  keys.queries = {scratch + shared.queries, keys.depth()};
  keys.keys = {scratch + shared.keys, keys.depth()};
  keys.writes = {scratch + shared.writes, tokens_deep};
  keys.sums = {scratch + shared.sums, p.chunk / kTileRows};
  keys.pairs = {scratch + shared.pairs, tokens_deep};
  keys.decays = scratch + shared.decays;
  keys.carries = scratch + at.carries;
  made.values = {scratch + shared.values, tokens_deep};
  made.state = {.floats = {scratch + at.floats, keys.width / kTileRows},
                .pairs = {scratch + at.pairs, keys.depth()},
                .rows = sizes.channels,
                .columns = sizes.columns,
                .row_tiles = keys.width / kTileRows,
                .column_tiles = padded(sizes.columns) / kLanes};
  return made;
}

inline void add_tensors(const TilesBackwardParams& p, const TaskRange& range, float* scratch,
                        BackwardTiles& task) {
  const RecurrentForwardParams& f = p.forward;
  const TilesBackwardScratch::Copies& at = p.scratch.copies_of_chunk;
  const auto source = [&](const TokenTensor<const void*>& tensor, std::int64_t elements,
                          std::int64_t copies) {
    return HalfSource{.rows = rows_of<const char>(tensor, range, range.head, 0),
                      .elements = elements,
                      .copies = reinterpret_cast<char*>(scratch + p.scratch.copies + copies),
                      .zeros = reinterpret_cast<const char*>(scratch + p.scratch.zeros)};
  };
  task.q = source(f.q, f.key_dim, at.q);
  task.k = source(f.k, f.key_dim, at.k);
  task.v = source(f.v, f.value_dim, at.v);
  task.d_o = source(p.d_o, f.value_dim, at.d_o);
  task.copies_size = at.size;
  task.dq = rows_of<char>(p.dq, range, range.head, 0);
  task.dk = rows_of<char>(p.dk, range, range.head, 0);
  task.dv = rows_of<char>(p.dv, range, range.head, 0);
  task.dg = rows_of<char>(p.dg, range, range.head, 0);
  task.g = rows_of<const char>(f.g, range, range.head, 0);
  task.initial = state_of(f.initial_state, range);
  task.dfinal = state_of(p.dfinal_state, range);
  task.dinitial = state_of(p.dinitial_state, range);
}

inline BackwardTiles backward_tiles(const TilesBackwardParams& p, std::int64_t sequence,
                                    std::int64_t head, float* scratch) {
  const RecurrentForwardParams& f = p.forward;
  const TaskRange range = head_range(f, sequence, head);
  BackwardTiles task;
  task.tokens = range.tokens;
  task.chunk = p.chunk;
  task.segment_tokens = p.segment_tokens;
  task.kept_chunks = p.kept_chunks;
  task.stream = p.stream;
  add_tensors(p, range, scratch, task);
  task.has_decay = f.g.data != nullptr;
  const RecurrenceSizes from_values{f.value_dim, f.key_dim};
  const RecurrenceSizes from_keys{f.key_dim, f.value_dim};
  const auto recurrence = [&](const RecurrenceSizes& sizes, int state) {
    return tile_recurrence(p, sizes, p.scratch.states[state], task.has_decay, scratch);
  };
  task.to_dq = recurrence(from_values, 0);
  task.to_dk = recurrence(from_values, 1);
  task.to_dv = recurrence(from_keys, 2);
  // do is scaled for dq as for dk: the pairs do . v of both then round alike, and what that takes
  // from q dq it takes from k dk.
  task.to_dq.read_scale = task.to_dk.write_scale = task.to_dv.write_scale = f.scale;
  task.outputs = scratch + p.scratch.outputs;
  task.partial = scratch + p.scratch.partial;
  task.dots = scratch + p.scratch.dots;
  task.anchors = scratch + p.scratch.anchors;
  return task;
}

// ---- a chunk's rows ----

struct ChunkHalves {
  HalfRows q, k, v, d_o;
};

// Copies the rows of a chunk, or finds the copies where they are.
inline void chunk_halves(const HalfSource& source, std::int64_t place, const ChunkSpan& span,
                         bool is_copied, HalfRows& rows) {
  HalfSource placed = source;
  placed.copies += place;
  const std::int64_t given = source.rows.data ? span.present : 0;
  if (!is_copied) return half_rows(placed, span.token, given, span.padded, rows);
  const std::int64_t step = (source.elements + kTileDepth - 1) / kTileDepth * kTileDepth * 2;
  for (std::int64_t t = 0; t < span.padded; ++t) {
    rows.of[t] = t < given ? placed.copies + t * step : source.zeros;
  }
}

inline void chunk_halves(const BackwardTiles& task, std::int64_t index, bool is_copied,
                         ChunkHalves& rows) {
  const ChunkSpan span = task.span(index);
  const std::int64_t slot = index < task.first_kept() ? 0 : index - task.first_kept() + 1;
  const auto place = slot * task.copies_size * static_cast<std::int64_t>(sizeof(float));
  chunk_halves(task.q, place, span, is_copied, rows.q);
  chunk_halves(task.k, place, span, is_copied, rows.k);
  chunk_halves(task.v, place, span, is_copied, rows.v);
  chunk_halves(task.d_o, place, span, is_copied, rows.d_o);
}

// Missing rows stay at the end.
inline void reverse_rows(HalfRows& rows, std::int64_t present) {
  for (std::int64_t t = 0; t < present / 2; ++t) {
    const char* const last = rows.of[present - 1 - t];
    rows.of[present - 1 - t] = rows.of[t];
    rows.of[t] = last;
  }
}

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

inline void run_tiles_backward(const TilesBackwardParams& p, std::int64_t first, std::int64_t last,
                               float* scratch) {
  const std::int64_t row =
      p.forward.key_dim > p.forward.value_dim ? p.forward.key_dim : p.forward.value_dim;
  zero_floats(scratch + p.scratch.zeros, round_up_to_lanes(row));
  zero_floats(scratch + p.scratch.partial, p.chunk * kLanes);
  configure_tiles();
  const char* lines[FetchList::kMaxLines];
  for (std::int64_t index = first; index < last; ++index) {
    BackwardTiles task =
        backward_tiles(p, index / p.forward.heads, index % p.forward.heads, scratch);
    sweep_with(task, lines);
    sweep_against(task, lines);
  }
  release_tiles();
  if (p.stream) streamed_writes_done();
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
