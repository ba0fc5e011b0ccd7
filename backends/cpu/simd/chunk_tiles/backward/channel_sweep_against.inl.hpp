// The sweep against the sequence where the channels of K decay each on its own: dk, dv and the gradients of
// the gates.
//
// With D the gradient of the state behind a span, and the rest as in channel_sweep_with.inl.hpp,
//
//   D := r_{n-1} D    dk_t = 1 / r_t (v_t D' + sum_{u >= t} (v_t . scale do_u) q~_u)
//                     dv_t = k~_t D + sum_{u >= t} (k~_t . q~_u) scale do_u
//                     D := a_0 (D + sum_t q~_t' scale do_t)
//
// The gradient of a gate is a sum over tokens of q dq - k dk
// (cpu/simd/chunk/backward/gate_gradients.inl.hpp), in which pairs of tokens on the same side of it
// cancel. They do so exactly where both terms are made of the same roundings, so q dq is summed up
// as q~ (dq / r), and k dk as k~ (r dk).
#pragma once

#include "channel_results.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward {

// dk and the gradients of gates, which add up from the last token on.
template <bool kExact>
struct DkWriting : ChannelWriting {
  static constexpr bool kSeparate = kExact;

  static std::int64_t parts() { return 2 * kTileRows / kRows; }

  [[gnu::noinline]] void run_part(std::int64_t index) const {
    float* const gates = task.gates + results.at.column;
    F32 gate[2] = {load(gates), load(gates + kLanes)};
    const std::int64_t first = (parts() - 1 - index) * kRows;
    const std::int64_t count = rows_present(span.span, results.at.token + first, kRows);
    for (std::int64_t t = count; t-- > 0;) write_row(first + t, gate);
    store(gates, gate[0]);
    store(gates + kLanes, gate[1]);
  }

 private:
  [[gnu::always_inline]] void write_row(std::int64_t t, F32 (&gate)[2]) const {
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
          sums + half * kTileFloats, decays_behind(row * width + i), span.k.vector(row, i),
          span.exact.own + row * width + i, kExact ? span.exact.k.vector(row, i) : F32{});
      gradient[half] = result.gradient;
      gate[half] += load(task.terms + token * width + i) - result.term;
      if (!kExact && row > 0) continue;
      // A channel that a token resets has no gradient there, whatever the terms round to.
      const float* const decay = kExact ? span.exact.decays + row * width : span.rows.first;
      gate[half] = load(decay + i) == F32{} ? F32{} : gate[half];
    }
    const std::int64_t columns = columns_from(task, column);
    if (add_to_group(task.dk_sums, token, column, gradient[0], gradient[1])) {
      write_output(gradient[0], gradient[1], columns, task.dk.row(token) + 2 * column, task.stream);
    }
    write_gates(gate[0], gate[1], columns, task.dgk.row(token) + 4 * column, task.stream);
    if (!task.sums_gates()) return;
    float* const partial = task.partial + row * kLanes;
    store(partial, (column == 0 ? F32{} : load(partial)) + gate[0] + gate[1]);
  }
  // What dk is sums times: the gradient behind the span has decayed by all of it, 1 / r takes back
  // what is before the token. In an exact span it has not, and decays from the token on.
  [[gnu::always_inline]] F32 decays_behind(std::int64_t at) const {
    if constexpr (kExact) return load(span.exact.behind + at);
    return reciprocal(load(span.rows.decays + at));
  }
};

// Gradients of what all channels decay by.
inline void sum_gates(const ChannelBackward& task, const ChunkSpan& span) {
  alignas(64) float sums[kMaxChunk];
  add_partial_dots(task.partial, span.padded, sums);
  for (std::int64_t t = span.present; t-- > 0;) {
    if (task.dgamma) *task.dgamma += static_cast<double>(sums[t]);
    if (task.dg.data) __builtin_memcpy(task.dg.row(span.token + t), sums + t, sizeof(float));
  }
}

template <bool kExact>
void make_span_dk(const ChannelBackward& task, const ChannelSpan& at, const ChunkDecay& decay,
                  BesideProducts& beside) {
  const TileRecurrence& of = task.to_dk;
  auto span = span_of_recurrence(of, at, at.q, decay, beside,
                                 DkWriting<kExact>{{.task = task, .span = at}});
  span.transposed = task.to_dv.state.pairs;
  PreparationAgainst<false>(of.keys, at.span, {.reads = at.v, .writes = at.d_o, .values = at.q}, {},
                            {.tiles = of.keys.sums})
      .run(beside, [&] { span.add_first_strip(); });
  if constexpr (kExact) {
    sum_own_exactly<TokenOrder::kAgainstSequence>(of.keys.sums.data, at.exact.q, at.exact.decays,
                                                  at.rows.width, at.exact.own);
  }
  run_recurrence(span);
}

inline void make_span_dv(const ChannelBackward& task, const ChannelSpan& at,
                         BesideProducts& beside) {
  const TileRecurrence& of = task.to_dv;
  const GradientRows dv{
      .rows = task.dv, .columns = of.state.columns, .stream = task.stream, .group = task.dv_sums};
  auto span =
      span_of_recurrence(of, at, at.d_o, {}, beside, GradientWriting{.to = &dv, .span = &at.span});
  PreparationAgainst<false>(of.keys, at.span, {.reads = at.k, .writes = at.q, .values = at.d_o}, {},
                            {.tiles = of.keys.sums})
      .run(beside, [&] { span.add_first_strip(); });
  if (at.is_exact) pair_exactly(of.keys, at.exact);
  run_recurrence(span);
}

// With a state `behind` it, the gradients of gates start from there anew.
inline void backward_span(const ChannelBackward& task, const ChannelSpan& at,
                          const StateBehind& behind, BesideProducts& beside) {
  if (at.is_cut) settle(task.to_dk.state, task.gradient_decay);
  if (!at.is_exact) multiply_floats(task.gradient_decay, at.rows.total, at.rows.width);
  if (behind.state) {
    sum_product_columns(behind, task.to_dk.state, task.gradient_decay,
                        at.is_exact ? nullptr : at.rows.total, task.gates);
  }
  ChunkDecay decay{.before = task.gradient_decay};
  if (at.is_exact) {
    decay.after = at.rows.total;
    make_span_dk<true>(task, at, decay, beside);
  } else {
    make_span_dk<false>(task, at, decay, beside);
  }
  make_span_dv(task, at, beside);
  copy_floats(at.rows.first, at.rows.width, task.gradient_decay);
  if (at.is_cut) settle(task.to_dk.state, task.gradient_decay);
  if (task.sums_gates()) sum_gates(task, at.span);
}

inline FetchList list_channels_against(const ChannelBackward& task, std::int64_t index,
                                       const char** lines) {
  FetchList list(lines, task.tokens - index * task.chunk, task.chunk);
  list.add(from_the_end(task.v.rows, task.tokens), task.v.elements);
  if (index <= task.first_kept()) {
    for (const HalfSource* source : {&task.q, &task.k, &task.d_o}) {
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
  read_floats(gradient, {.data = task.dfinal.data,
                         .key_stride = task.dfinal.value_stride,
                         .value_stride = task.dfinal.key_stride});
  StateBehind behind{.state = task.to_dq.state.floats.data, .decay = task.state_decay};
  if (task.dgamma) *task.dgamma = 0.0;
  const std::int64_t steps =
      products_beside(task.to_dk, task.chunk) + products_beside(task.to_dv, task.chunk);
  FetchList list(lines, 0, 0);
  for (std::int64_t index = task.chunks() - 1; index >= 0; --index) {
    if (index > 0 && (index == task.chunks() - 1 || index == task.first_kept())) {
      list = list_channels_against(task, index, lines);
    }
    BesideProducts beside;
    if (index > 0) beside.fetcher = list.fetcher(steps);
    ChannelChunk chunk;
    channel_chunk(task, index, index >= task.first_kept(), chunk);
    for (std::int64_t i = chunk.spans.count; i-- > 0;) {
      ChannelSpan at;
      channel_span(task, chunk, i, at);
      backward_span(task, at, behind, beside);
      behind = {};
    }
    behind.state = task.checkpoint_at(chunk.span.token);
    if (index > 0) list.next_chunk();
  }
  settle(task.to_dk.state, task.gradient_decay);
  write_state(task.to_dk.state, {.data = task.dinitial.data,
                                 .key_stride = task.dinitial.value_stride,
                                 .value_stride = task.dinitial.key_stride});
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward
