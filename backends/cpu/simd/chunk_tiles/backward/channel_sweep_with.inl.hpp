// The sweep with the sequence where the channels of K decay each on its own: dq, and what it adds to the
// gradients of gates.
//
// With q~, k~, r and a_0 of a span as in channel_rows.inl.hpp, and S before it,
//
//   S := a_0 S        dq_t = r_t (scale do_t S' + sum_{s <= t} (scale do_t . v_s) k~_s)
//                     S := r_{n-1} (S + sum_t k~_t' v_t)
#pragma once

#include "channel_results.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward {

template <bool kExact>
struct DqWriting : ChannelWriting {
  static constexpr bool kSeparate = kExact;

  static std::int64_t parts() { return 2 * kTileRows / kRows; }

  [[gnu::noinline]] void run_part(std::int64_t index) const {
    const std::int64_t first = index * kRows;
    const std::int64_t count = rows_present(span.span, results.at.token + first, kRows);
    for (std::int64_t t = 0; t < count; ++t) write_row(first + t);
  }

 private:
  [[gnu::always_inline]] void write_row(std::int64_t t) const {
    const std::int64_t column = results.at.column;
    const std::int64_t width = span.rows.width;
    const std::int64_t row = results.at.token + t;
    const std::int64_t token = span.span.token + row;
    const float* const sums = result_row(results.tiles, t);
    F32 gradient[2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const std::int64_t i = column + half * kLanes;
      const ChannelResult result = finish_channels<kExact>(
          sums + half * kTileFloats, load(span.rows.decays + row * width + i),
          span.q.vector(row, i), span.exact.own + row * width + i,
          kExact ? span.exact.q.vector(row, i) : F32{});
      store(task.terms + token * width + i, result.term);
      gradient[half] = result.gradient;
    }
    write_output(gradient[0], gradient[1], columns_from(task, column),
                 task.dq.row(token) + 2 * column, task.stream);
  }
};

template <bool kExact>
void make_span_dq(const ChannelBackward& task, const ChannelSpan& at, const ChunkDecay& decay,
                  BesideProducts& beside) {
  const TileRecurrence& of = task.to_dq;
  auto span = span_of_recurrence(of, at, at.k, decay, beside,
                                 DqWriting<kExact>{{.task = task, .span = at}});
  ScorePreparation<false>(of.keys, at.span, {.q = &at.d_o, .k = at.v}, nullptr, of.outputs)
      .run(beside, [&] { span.add_first_strip(); });
  if constexpr (kExact) {
    sum_own_exactly<TokenOrder::kWithSequence>(of.outputs, at.exact.k, at.exact.decays,
                                               at.rows.width, at.exact.own);
  }
  run_recurrence(span);
}

inline void forward_span(const ChannelBackward& task, const ChannelSpan& at,
                         BesideProducts& beside) {
  if (at.is_cut) settle(task.to_dq.state, task.state_decay);
  multiply_floats(task.state_decay, at.rows.first, at.rows.width);
  ChunkDecay decay{.before = task.state_decay};
  if (at.is_exact) {
    decay.after = at.rows.total;
    make_span_dq<true>(task, at, decay, beside);
    return fill_floats(task.state_decay, at.rows.width, 1.0F);
  }
  make_span_dq<false>(task, at, decay, beside);
  copy_floats(at.rows.total, at.rows.width, task.state_decay);
  if (at.is_cut) settle(task.to_dq.state, task.state_decay);
}

inline void forward_channel_chunk(const ChannelBackward& task, std::int64_t index,
                                  const LineFetcher& fetcher) {
  BesideProducts beside;
  beside.fetcher = fetcher;
  ChannelChunk chunk;
  channel_chunk(task, index, false, chunk);
  for (std::int64_t i = 0; i < chunk.spans.count; ++i) {
    ChannelSpan at;
    channel_span(task, chunk, i, at);
    forward_span(task, at, beside);
  }
}

inline void sweep_channels_with(const ChannelBackward& task, const char** lines) {
  const std::int64_t width = task.inputs.width;
  fill_floats(task.state_decay, width, 1.0F);
  read_floats(task.to_dq.state, {.data = task.initial.data,
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
    if (float* const checkpoint = task.checkpoint_at(token)) {
      keep_decayed_state(task.to_dq.state, task.state_decay, checkpoint);
    }
    const bool fetches = token + 2 * task.chunk <= task.tokens;
    forward_channel_chunk(
        task, index,
        fetches ? list.fetcher(products_beside(task.to_dq, task.chunk)) : LineFetcher{});
    if (fetches) list.next_chunk();
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward
