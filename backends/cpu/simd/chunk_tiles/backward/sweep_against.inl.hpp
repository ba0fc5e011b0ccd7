// The sweep against the sequence where all channels decay alike: dk, dv and the gradients of the gates.
#pragma once

#include "task.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward {

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

alignas(64) inline constexpr float kLaneNumbers[] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                     8, 9, 10, 11, 12, 13, 14, 15};

// steps[t] = sum_{s < t} x[s, t] - sum_{s > t} x[t, s], of what scores add to the gradients of the
// gates between them: what the chunk's own add to that of token t beside that of the next.
[[gnu::noinline]] inline void step_tile_scores(const TileMatrix& scores, const ChunkSpan& span,
                                               float* steps) {
  zero_floats(steps, span.padded);
  for (std::int64_t block = 0; block < span.blocks(); ++block) {
    F32 read[kTileRows] = {};
    for (std::int64_t writer = block; writer < span.blocks(); ++writer) {
      const float* const tile = scores.at(block, writer);
      F32 written{};
#pragma GCC unroll 16
      for (std::int64_t t = 0; t < kTileRows; ++t) {
        const F32 product = load(tile + t * kLanes);
        const bool is_other = writer > block;
        const F32 other = is_other || load(kLaneNumbers) > static_cast<float>(t) ? product : F32{};
        read[t] += other;
        written += other;
      }
      float* const step = steps + writer * kTileRows;
      store(step, load(step) + written);
    }
    alignas(64) float sums[kTileRows];
    sum_lanes<kTileRows>(read, sums);
    float* const step = steps + block * kTileRows;
    store(step, load(step) - load(sums));
  }
}

// What a chunk's tokens add to the gradients of its gates.
struct GateTerms {
  alignas(64) float written[kMaxChunk];  // k dk of the gradient behind the chunk
  alignas(64) float steps[kMaxChunk];    // of its own scores
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
  double of_scores = 0.0;
  for (std::int64_t t = span.present; t-- > 0;) {
    const std::int64_t token = span.token + t;
    of_states += static_cast<double>(task.dots[token]) - static_cast<double>(terms.written[t]);
    of_scores += static_cast<double>(terms.steps[t]);
    if (decays[t] == 0.0F) of_states = of_scores = 0.0;
    const double gradient = of_states + of_scores;
    if (task.dgamma) *task.dgamma += gradient;
    if (!task.dg.data) continue;
    const auto rounded = static_cast<float>(gradient);
    __builtin_memcpy(task.dg.row(token), &rounded, sizeof(rounded));
  }
  task.gate = of_states;
}

// The state before a chunk, or null where it was not kept.
inline const float* state_before(const BackwardTiles& task, const ChunkSpan& span) {
  if (span.token > 0) return task.checkpoint_at(span.token);
  read_initial(task);  // that of dq has done its work
  return task.to_dq.state.floats.data;
}

// A chunk against the sequence.
struct BackwardChunk {
  ChunkSpan span;
  ChunkHalves rows;
  TileTokenDecays decays;
  alignas(64) float writes[kMaxChunk];  // factors of what tokens write
  GateTerms terms;
  BesideProducts beside;

  FactorsAgainst factors(float scale) const {
    return {.decays = &decays, .writes = writes, .scores = scale};
  }
};

// The scores of dk are left as they are, for those of dv.
template <class Writing>
void make_dk(const BackwardTiles& task, BackwardChunk& of_task, const Writing& writing) {
  const TileRecurrence& of = task.to_dk;
  const ChunkHalves& rows = of_task.rows;
  const RecurrenceRows roles{.reads = rows.v, .writes = rows.d_o, .values = rows.q};
  auto chunk = recurrence_chunk(of, of_task.span, roles, of_task.beside, writing);
  chunk.transposed = task.to_dv.state.pairs;
  PreparationAgainst<true>(of.keys, of_task.span, roles, of_task.factors(task.scale),
                           {.tiles = of.keys.sums, .are_kept = task.has_decay})
      .run(of_task.beside, [&] { chunk.add_first_strip(); });
  run_recurrence(chunk);
}

template <class Writing>
void make_dv(const BackwardTiles& task, BackwardChunk& of_task, const Writing& writing) {
  const TileRecurrence& of = task.to_dv;
  const ChunkHalves& rows = of_task.rows;
  const RecurrenceRows roles{.reads = rows.k, .writes = rows.q, .values = rows.d_o};
  auto chunk = recurrence_chunk(of, of_task.span, roles, of_task.beside, writing);
  PreparationAgainst<true>(of.keys, of_task.span, roles, of_task.factors(task.scale),
                           {.tiles = of.keys.sums,
                            .are_kept = task.has_decay,
                            .others = task.has_decay ? &task.to_dk.keys.sums : nullptr})
      .run(of_task.beside, [&] { chunk.add_first_strip(); });
  run_recurrence(chunk);
}

// <S, D> of the state before a chunk and the gradient behind it, as it passes the chunk.
inline double passing(const BackwardTiles& task, const float* before) {
  return static_cast<double>(task.to_dk.keys.decays[0]) *
         static_cast<double>(sum_products(task.to_dk.state, before));
}

inline void backward_with_gates(BackwardTiles& task, BackwardChunk& chunk, const GradientRows& dk,
                                const GradientRows& dv) {
  const ChunkSpan& span = chunk.span;
  const TileTokenDecays& decays = chunk.decays;
  const float* const before = state_before(task, span);
  if (before) task.gate = passing(task, before);
  make_dk(task, chunk,
          DecayedWriting<true>{.to = &dk,
                               .span = &span,
                               .factors = decays.behind,
                               .rows = &chunk.rows.k,
                               .partial = task.partial});
  add_decayed_dots(task.partial, decays.behind, 1.0F, span.padded, chunk.terms.written);
  make_dv(task, chunk, DecayedWriting<false>{.to = &dv, .span = &span, .factors = decays.behind});
  step_tile_scores(task.to_dv.keys.sums, span, chunk.terms.steps);
  gate_gradients(task, span, decays.of_token, chunk.terms, before != nullptr);
}

inline void backward_tiles_chunk(BackwardTiles& task, std::int64_t index,
                                 const LineFetcher& fetcher) {
  BackwardChunk chunk;
  chunk.span = task.span(index);
  chunk.beside.fetcher = fetcher;
  chunk_halves(task, index, index >= task.first_kept(), chunk.rows);
  chunk_decays(task, task.to_dk.keys, chunk.span, chunk.decays);
  for (std::int64_t t = 0; t < chunk.span.padded; t += kLanes) {
    store(chunk.writes + t, load(chunk.decays.through + t) * task.scale);
  }
  const GradientRows dk{.rows = task.dk,
                        .columns = task.to_dk.state.columns,
                        .stream = task.stream,
                        .group = task.dk_sums};
  const GradientRows dv{.rows = task.dv,
                        .columns = task.to_dv.state.columns,
                        .stream = task.stream,
                        .group = task.dv_sums};
  if (task.has_decay) return backward_with_gates(task, chunk, dk, dv);
  make_dk(task, chunk, GradientWriting{.to = &dk, .span = &chunk.span});
  make_dv(task, chunk, GradientWriting{.to = &dv, .span = &chunk.span});
}

inline FetchList list_against(const BackwardTiles& task, std::int64_t index, const char** lines) {
  FetchList list(lines, task.tokens - index * task.chunk, task.chunk);
  if (!task.stream) {
    list.add(from_the_end(task.dk, task.tokens), task.k.elements);
    list.add(from_the_end(task.dv, task.tokens), task.v.elements);
  }
  for (const HalfSource* source : {&task.q, &task.k, &task.v, &task.d_o}) {
    if (index > task.first_kept() && source->elements % kTileDepth != 0) continue;
    list.add(from_the_end(source->rows, task.tokens), source->elements);
  }
  return list;
}

inline void sweep_against(BackwardTiles& task, const char** lines) {
  zero_floats(task.to_dk.keys.carries, kLanes);
  read_floats(task.to_dk.state, {.data = task.dfinal.data,
                                 .key_stride = task.dfinal.value_stride,
                                 .value_stride = task.dfinal.key_stride});
  if (task.dgamma) *task.dgamma = 0.0;
  if (task.has_decay) {
    task.gate = static_cast<double>(sum_products(task.to_dk.state, task.to_dq.state.floats.data));
  }
  const std::int64_t steps =
      products_beside(task.to_dk, task.chunk) + products_beside(task.to_dv, task.chunk);
  FetchList list(lines, 0, 0);
  for (std::int64_t index = task.chunks() - 1; index >= 0; --index) {
    if (index > 0 && (index == task.chunks() - 1 || index == task.first_kept())) {
      list = list_against(task, index, lines);
    }
    backward_tiles_chunk(task, index, index > 0 ? list.fetcher(steps) : LineFetcher{});
    if (index > 0) list.next_chunk();
  }
  write_state(task.to_dk.state, {.data = task.dinitial.data,
                                 .key_stride = task.dinitial.value_stride,
                                 .value_stride = task.dinitial.key_stride});
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward
