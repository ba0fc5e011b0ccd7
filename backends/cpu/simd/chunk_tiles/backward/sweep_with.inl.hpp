// The sweep with the sequence where all channels decay alike: dq.
#pragma once

#include "task.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward {

// do, v and k of a chunk, with its decays.
inline void make_decayed_dq(const BackwardTiles& task, const ChunkSpan& span,
                            const ChunkHalves& rows, const GradientRows& dq,
                            BesideProducts& beside) {
  const TileRecurrence& of = task.to_dq;
  TileTokenDecays decays;
  chunk_decays(task, of.keys, span, decays);
  auto chunk = recurrence_chunk(of, span, {rows.d_o, rows.v, rows.k}, beside,
                                DecayedWriting<true>{.to = &dq,
                                                     .span = &span,
                                                     .factors = decays.through,
                                                     .rows = &rows.q,
                                                     .partial = task.partial});
  ScorePreparation<true>(of.keys, span, {.q = &rows.d_o, .k = rows.v}, &decays, of.outputs)
      .run(beside, [&] { chunk.add_first_strip(); });
  run_recurrence(chunk);
  add_decayed_dots(task.partial, decays.through, task.scale, span.padded, task.dots + span.token);
}

inline void make_dq(const BackwardTiles& task, const ChunkSpan& span, const ChunkHalves& rows,
                    const GradientRows& dq, BesideProducts& beside) {
  const TileRecurrence& of = task.to_dq;
  auto chunk = recurrence_chunk(of, span, {rows.d_o, rows.v, rows.k}, beside,
                                GradientWriting{.to = &dq, .span = &span});
  ScorePreparation<false>(of.keys, span, {.q = &rows.d_o, .k = rows.v}, nullptr, of.outputs)
      .run(beside, [&] { chunk.add_first_strip(); });
  run_recurrence(chunk);
}

inline void forward_tiles(const BackwardTiles& task, std::int64_t index,
                          const LineFetcher& fetcher) {
  const ChunkSpan span = task.span(index);
  ChunkHalves rows;
  chunk_halves(task, index, false, rows);
  BesideProducts beside;
  beside.fetcher = fetcher;
  const GradientRows dq{.rows = task.dq,
                        .columns = task.to_dq.state.columns,
                        .stream = task.stream,
                        .scale = task.scale};
  if (task.has_decay) {
    make_decayed_dq(task, span, rows, dq, beside);
  } else {
    make_dq(task, span, rows, dq, beside);
  }
}

inline void keep_state(const TileState& state, float* checkpoint) {
  const std::int64_t size = state.row_tiles * state.column_tiles * kTileFloats;
  for (std::int64_t i = 0; i < size; i += kLanes)
    store(checkpoint + i, load(state.floats.data + i));
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
    if (float* const checkpoint = task.checkpoint_at(token))
      keep_state(task.to_dq.state, checkpoint);
    const bool fetches = token + 2 * task.chunk <= task.tokens;
    forward_tiles(task, index,
                  fetches ? list.fetcher(products_beside(task.to_dq, task.chunk)) : LineFetcher{});
    if (fetches) list.next_chunk();
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward
