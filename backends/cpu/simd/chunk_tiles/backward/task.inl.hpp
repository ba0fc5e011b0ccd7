// One head of a sequence in the chunked backward kernel on tile registers: its tensors, recurrences
// and scratch memory, whatever its gates, and the rows of its chunks.
#pragma once

#include "backward_params.hpp"
#include "gradient_rows.inl.hpp"
#include "scores.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward {

using simd::chunk_tiles::backward::Instance;
using simd::chunk_tiles::backward::Params;
using simd::chunk_tiles::backward::Scratch;

struct BackwardTiles {
  std::int64_t tokens = 0;
  std::int64_t chunk = 0;
  std::int64_t segment_tokens = 0;
  std::int64_t kept_chunks = 0;
  HalfSource q, k, v, d_o;  // `copies` of the first chunk
  std::int64_t copies_size = 0;
  OutputRows dq, dk, dv, dg;
  GroupSums dk_sums, dv_sums;
  InputRows g;
  float gamma = 0.0F;
  float scale = 1.0F;
  bool has_decay = false;  // of any kind
  bool stream = false;
  TileRecurrence to_dq, to_dk, to_dv;
  StateView<const float*> initial, dfinal;
  StateView<float*> dinitial;
  float* partial = nullptr;
  float* dots = nullptr;
  float* checkpoints = nullptr;
  double* dgamma = nullptr;
  double gate = 0.0;  // what passes the edge of a chunk

  std::int64_t widest() const {
    return to_dk.width() > to_dv.width() ? to_dk.width() : to_dv.width();
  }
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
  float* checkpoint_at(std::int64_t token) const {
    if (!has_decay || token == 0 || token % segment_tokens != 0) return nullptr;
    return checkpoints + (token / segment_tokens - 1) * state_size();
  }
};

// ---- making a task ----

struct RecurrenceSizes {
  TokenOrder order;
  std::int64_t channels;  // of the reads
  std::int64_t columns;
};

inline TileRecurrence tile_recurrence(const Params& p, const RecurrenceSizes& sizes,
                                      const Scratch::State& at, bool has_decay, float* scratch) {
  const Scratch& shared = p.scratch;
  const auto padded = [](std::int64_t count) {
    return (count + kTileDepth - 1) / kTileDepth * kTileDepth;
  };
  TileRecurrence made;
  made.order = sizes.order;
  TileKeys& keys = made.keys;
  keys.has_decay = has_decay;
  keys.channels = sizes.channels;
  keys.width = padded(sizes.channels);
  const std::int64_t tokens_deep = p.chunk / kTileDepth;
  keys.queries = {scratch + shared.queries, keys.depth()};
  keys.keys = {scratch + shared.keys, keys.depth()};
  keys.writes = {scratch + shared.writes, tokens_deep};
  keys.sums = {scratch + shared.sums, p.chunk / kTileRows};
  keys.scores = {scratch + shared.scores, tokens_deep};
  keys.decays = scratch + shared.decays;
  keys.carries = scratch + at.carries;
  made.values = {scratch + shared.values, tokens_deep};
  made.state = {.floats = {scratch + at.floats, keys.width / kTileRows},
                .pairs = {scratch + shared.state_pairs, keys.depth()},
                .rows = sizes.channels,
                .columns = sizes.columns,
                .row_tiles = keys.width / kTileRows,
                .column_tiles = padded(sizes.columns) / kLanes};
  made.outputs = scratch + shared.outputs;
  return made;
}

// D is made once: dk reads it transposed.
inline TileRecurrence transposed_recurrence(const Params& p, TileRecurrence made, float* scratch) {
  made.is_transposed = true;
  made.state.floats = {};
  made.state.pairs.data = scratch + p.scratch.transposed_pairs;
  made.keys.writes = {};
  return made;
}

inline void add_tensors(const Params& p, const TaskRange& range, float* scratch,
                        BackwardTiles& task) {
  const ForwardParams& f = p.forward;
  const Scratch::Copies& at = p.scratch.copies_of_chunk;
  const auto source = [&](const TokenTensor<const void*>& tensor, std::int64_t head,
                          std::int64_t elements, std::int64_t copies) {
    return HalfSource{.rows = rows_of<const char>(tensor, range, head, 0),
                      .elements = elements,
                      .copies = reinterpret_cast<char*>(scratch + p.scratch.copies + copies),
                      .zeros = reinterpret_cast<const char*>(scratch + p.scratch.zeros)};
  };
  task.q = source(f.q, range.head, f.key_dim, at.q);
  task.k = source(f.k, range.kv_head, f.key_dim, at.k);
  task.v = source(f.v, range.kv_head, f.value_dim, at.v);
  task.d_o = source(p.d_o, range.head, f.value_dim, at.d_o);
  task.copies_size = at.size;
  task.dq = rows_of<char>(p.dq, range, range.head, 0);
  task.dk = rows_of<char>(p.dk, range, range.kv_head, 0);
  task.dv = rows_of<char>(p.dv, range, range.kv_head, 0);
  task.dg = rows_of<char>(p.dg, range, range.head, 0);
  task.g = rows_of<const char>(f.g, range, range.head, 0);
  task.initial = state_of(f.initial_state, range);
  task.dfinal = state_of(p.dfinal_state, range);
  task.dinitial = state_of(p.dinitial_state, range);
}

// Of the query heads of a kv head.
inline void add_group_sums(const Params& p, const TaskRange& range, float* scratch,
                           BackwardTiles& task) {
  const std::int64_t group = p.forward.heads / p.forward.kv_heads;
  if (group == 1) return;
  const std::int64_t place = range.head % group;
  const auto sums = [&](std::int64_t rows, std::int64_t width) {
    return GroupSums{.rows = scratch + rows,
                     .width = width,
                     .is_first = place == 0,
                     .is_last = place == group - 1};
  };
  task.dk_sums = sums(p.scratch.dk_sums, task.to_dk.width());
  task.dv_sums = sums(p.scratch.dv_sums, task.to_dv.width());
}

inline BackwardTiles backward_tiles(const Params& p, std::int64_t sequence, std::int64_t head,
                                    float* scratch) {
  const ForwardParams& f = p.forward;
  const TaskRange range = head_range(f, sequence, head);
  BackwardTiles task;
  task.tokens = range.tokens;
  task.chunk = p.chunk;
  task.segment_tokens = p.segment_tokens;
  task.kept_chunks = p.kept_chunks;
  task.stream = p.stream;
  add_tensors(p, range, scratch, task);
  task.gamma = gamma_of(f, range);
  task.dgamma = p.dgamma ? p.dgamma + sequence * f.heads + head : nullptr;
  task.scale = f.scale;
  task.has_decay = has_key_decay(f);
  const auto recurrence = [&](const RecurrenceSizes& sizes, int state) {
    return tile_recurrence(p, sizes, p.scratch.states[state], task.has_decay && !f.gk.data,
                           scratch);
  };
  task.to_dq = recurrence({TokenOrder::kWithSequence, f.value_dim, f.key_dim}, 0);
  task.to_dk = recurrence({TokenOrder::kAgainstSequence, f.value_dim, f.key_dim}, 1);
  task.to_dv = transposed_recurrence(
      p, recurrence({TokenOrder::kAgainstSequence, f.key_dim, f.value_dim}, 1), scratch);
  task.to_dv.keys.sums.data = scratch + p.scratch.key_sums;
  add_group_sums(p, range, scratch, task);
  task.partial = scratch + p.scratch.partial;
  task.dots = scratch + p.scratch.dots;
  task.checkpoints = scratch + p.scratch.checkpoints;
  return task;
}

// ---- a chunk's rows ----

struct ChunkHalves {
  HalfRows q, k, v, d_o;
};

// Rows of a chunk that were copied, `present` of them.
inline void find_copies(const HalfSource& source, std::int64_t place, std::int64_t present,
                        std::int64_t padded, HalfRows& rows) {
  const char* const copies = source.copies + place;
  const std::int64_t step = (source.elements + kTileDepth - 1) / kTileDepth * kTileDepth * 2;
  for (std::int64_t t = 0; t < present; ++t) rows.of[t] = copies + t * step;
  for (std::int64_t t = present; t < padded; ++t) rows.of[t] = source.zeros;
}

// Rows where they lie. If their elements are not whole 32s they are copied, or were.
inline void chunk_halves(const HalfSource& source, std::int64_t place, const ChunkSpan& span,
                         bool is_kept, HalfRows& rows) {
  const std::int64_t given = source.rows.data ? span.present : 0;
  if (is_kept && source.elements % kTileDepth != 0) {
    return find_copies(source, place, given, span.padded, rows);
  }
  HalfSource placed = source;
  placed.copies += place;
  find_rows(placed, span.token, given, span.padded, rows);
}

inline void chunk_halves(const BackwardTiles& task, std::int64_t index, bool is_kept,
                         ChunkHalves& rows) {
  const ChunkSpan span = task.span(index);
  const std::int64_t slot = index < task.first_kept() ? 0 : index - task.first_kept() + 1;
  const auto place = slot * task.copies_size * static_cast<std::int64_t>(sizeof(float));
  chunk_halves(task.q, place, span, is_kept, rows.q);
  chunk_halves(task.k, place, span, is_kept, rows.k);
  chunk_halves(task.v, place, span, is_kept, rows.v);
  chunk_halves(task.d_o, place, span, is_kept, rows.d_o);
}

// Decays of a chunk's tokens; that of the whole chunk goes into `keys.decays`.
inline void chunk_decays(const BackwardTiles& task, const TileKeys& keys, const ChunkSpan& span,
                         TileTokenDecays& decays) {
  TokenLogs logs;
  token_logs(task.g, task.gamma, span.token, span.present, span.padded, logs);
  const F32 total = tile_token_decays(logs, span.padded, keys.carries, decays);
  for (std::int64_t i = 0; i < task.widest(); i += kLanes) store(keys.decays + i, total);
}

// All elements of a state decay alike.
inline ChunkDecay decay_of_chunk(const TileRecurrence& of) {
  return {.after = of.keys.has_decay ? of.keys.decays : nullptr};
}

// Gradients of a chunk, by what their writing needs.
template <class Writing>
RecurrenceChunk<Writing> recurrence_chunk(const TileRecurrence& of, const ChunkSpan& span,
                                          const RecurrenceRows& rows, BesideProducts& beside,
                                          const Writing& writing) {
  return {.of = of,
          .span = span,
          .values = rows.values,
          .decay = decay_of_chunk(of),
          .beside = beside,
          .writing = writing};
}

// Transposed.
inline void read_initial(const BackwardTiles& task) {
  read_floats(task.to_dq.state, {.data = task.initial.data,
                                 .key_stride = task.initial.value_stride,
                                 .value_stride = task.initial.key_stride});
}

// How often a chunk of a recurrence does something beside products: after every second one.
inline std::int64_t products_beside(const TileRecurrence& of, std::int64_t chunk) {
  const std::int64_t halves = chunk / kTileDepth;
  const std::int64_t strips = of.width() / kTileDepth;
  const std::int64_t depth = of.keys.depth();
  const std::int64_t pairs = halves * (halves + 1) / 2;
  const std::int64_t updates = of.is_transposed ? 0 : depth * halves;
  return 2 * (pairs * depth + strips * (halves * depth + pairs + updates));
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward
