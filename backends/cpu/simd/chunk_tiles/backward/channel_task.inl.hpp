// One head of a sequence whose channels of K decay each on its own: what the two sweeps keep of a
// chunk, and the gradients of the gates.
#pragma once

#include "channel_rows.inl.hpp"
#include "task.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward {

struct ChannelBackward : BackwardTiles {
  ChannelInputs inputs;
  ExactSpan exact;
  ChannelRows rows;            // of the first chunk copied
  float* kept_rows = nullptr;  // likewise: one of those below
  OutputRows dgk;
  float* centers = nullptr;         // [K]: of a span's logs
  float* terms = nullptr;           // [T, K]: q dq
  float* gates = nullptr;           // [K]: the gradients at the token at hand
  float* state_decay = nullptr;     // [K]: what S is still to decay by, as the next
  float* gradient_decay = nullptr;  // D

  bool sums_gates() const { return dg.data || dgamma; }
};

inline ChannelBackward channel_backward(const Params& p, std::int64_t sequence, std::int64_t head,
                                        float* scratch) {
  ChannelBackward task;
  static_cast<BackwardTiles&>(task) = backward_tiles(p, sequence, head, scratch);
  const ForwardParams& f = p.forward;
  const TaskRange range = head_range(f, sequence, head);
  const Scratch& at = p.scratch;
  const Scratch::Copies& copies = at.copies_of_chunk;
  float* const chunk = scratch + at.copies;
  task.inputs = {.q = task.q,
                 .k = task.k,
                 .gk = {.rows = rows_of<const char>(f.gk, range, head, 0),
                        .elements = f.key_dim,
                        .buffer = scratch + at.gate_rows,
                        .zeros = scratch + at.zeros},
                 .g = task.g,
                 .gamma = task.gamma,
                 .width = task.to_dv.keys.width};
  task.inputs.q.copies = reinterpret_cast<char*>(scratch + at.q_rows);
  task.inputs.k.copies = reinterpret_cast<char*>(scratch + at.k_rows);
  task.rows = {.q = task.q.copies,
               .k = task.k.copies,
               .decays = chunk + copies.decays,
               .first = chunk + copies.first,
               .total = chunk + copies.total,
               .width = task.inputs.width};
  float* const exact = scratch + at.exact_span;
  const std::int64_t exact_size = kTileRows * task.inputs.width;
  task.exact.decays = exact;
  task.exact.behind = exact + exact_size;
  task.exact.own = exact + 2 * exact_size;
  task.kept_rows = chunk + copies.kept_rows;
  task.dgk = rows_of<char>(p.dgk, range, head, 0);
  task.centers = scratch + at.centers;
  task.terms = scratch + at.terms;
  task.gates = scratch + at.gates;
  task.state_decay = scratch + at.state_decay;
  task.gradient_decay = scratch + at.gradient_decay;
  return task;
}

// ---- a chunk's rows ----

// A chunk as both sweeps work on it.
struct ChannelChunk {
  ChunkSpan span;
  ChannelRows rows;
  ChannelTokens tokens;  // only where the rows are made anew
  HalfRows v, d_o;
  ChannelSpans spans;
  bool is_cut = false;    // perhaps into one span, around its center
  bool has_rows = false;  // else channel_span() makes those of each span
};

// do as operands of products: before its one rounding times the scale.
[[gnu::noinline]] inline void scale_rows(const HalfRows& rows, std::int64_t present,
                                         std::int64_t width, float scale, char* to) {
  for (std::int64_t t = 0; t < present; ++t) {
    for (std::int64_t i = 0; i < width; i += kTileDepth) {
      const F32 x = join_bf16(rows.vector(t, i) * scale, rows.vector(t, i + kLanes) * scale);
      __builtin_memcpy(to + 2 * (t * width + i), &x, sizeof(x));
    }
  }
}

inline void decay_around_center(const ChannelBackward& task, const ChannelTokens& tokens,
                                std::int64_t begin, std::int64_t end, const ChannelRows& to) {
  SpanTokens span{.of_chunk = tokens, .begin = begin, .end = end};
  center_logs(span, to.width, task.centers);
  span.centers = task.centers;
  decay_rows(span, to);
}

// What was kept of a chunk's rows.
inline constexpr float kNoRows = 0.0F;
inline constexpr float kRowsOfChunk = 1.0F;
inline constexpr float kRowsAroundCenter = 2.0F;

// The rows where the chunk is one span, or else its spans. `is_cut` says whether that is known.
inline void make_rows(const ChannelBackward& task, ChannelChunk& chunk) {
  const std::int64_t present = chunk.span.present;
  if (!chunk.is_cut) {
    chunk.has_rows = decay_rows({.of_chunk = chunk.tokens, .begin = 0, .end = present}, chunk.rows);
    chunk.is_cut = !chunk.has_rows;
  }
  if (chunk.has_rows) return;
  cut_chunk(chunk.tokens, chunk.rows.width, present, chunk.spans);
  if (chunk.spans.count > 1 || chunk.spans.is_exact[0]) return;
  decay_around_center(task, chunk.tokens, 0, present, chunk.rows);
  chunk.has_rows = true;
}

// What the first sweep kept of a chunk is kept.
inline void channel_chunk(const ChannelBackward& task, std::int64_t index, bool is_kept,
                          ChannelChunk& chunk) {
  chunk.span = task.span(index);
  const std::int64_t present = chunk.span.present;
  const std::int64_t slot = index < task.first_kept() ? 0 : index - task.first_kept() + 1;
  const std::int64_t floats = slot * task.copies_size;
  const auto place = floats * static_cast<std::int64_t>(sizeof(float));
  chunk.rows = task.rows;
  chunk.rows.q += place;
  chunk.rows.k += place;
  chunk.rows.decays += floats;
  chunk.rows.first += floats;
  chunk.rows.total += floats;
  chunk_halves(task.v, place, chunk.span, is_kept, chunk.v);
  const std::int64_t given = task.d_o.rows.data ? present : 0;
  if (!is_kept) {
    chunk_halves(task.d_o, place, chunk.span, false, chunk.d_o);
    scale_rows(chunk.d_o, given, task.to_dq.keys.width, task.scale, task.d_o.copies + place);
  }
  find_copies(task.d_o, place, given, chunk.span.padded, chunk.d_o);
  chunk.spans = {.count = 1, .begin = {0, present}, .is_exact = {false}};
  float* const kept = task.kept_rows + floats;
  chunk.has_rows = is_kept && *kept != kNoRows;
  chunk.is_cut = is_kept && *kept != kRowsOfChunk;
  if (chunk.has_rows) return;
  channel_tokens(task.inputs, chunk.span, chunk.tokens);
  make_rows(task, chunk);
  *kept = !chunk.has_rows ? kNoRows : chunk.is_cut ? kRowsAroundCenter : kRowsOfChunk;
}

// A span as products work on it.
struct ChannelSpan {
  ChunkSpan span;
  ChannelRows rows;
  HalfRows q, k, v, d_o;  // q~ and k~
  bool is_cut, is_exact;
  ExactSpan exact;
};

inline void channel_span(const ChannelBackward& task, const ChannelChunk& chunk, std::int64_t index,
                         ChannelSpan& made) {
  const std::int64_t begin = chunk.spans.begin[index];
  const std::int64_t present = chunk.spans.begin[index + 1] - begin;
  made.span = {.token = chunk.span.token + begin,
               .present = present,
               .padded = (present + kTileDepth - 1) / kTileDepth * kTileDepth};
  made.rows = chunk.rows.from(begin);
  made.is_cut = chunk.is_cut;
  made.is_exact = chunk.spans.is_exact[index];
  made.exact = task.exact;
  if (made.is_exact) {
    exact_rows(chunk.tokens, begin, begin + present, made.rows, made.exact);
  } else if (!chunk.has_rows) {
    decay_around_center(task, chunk.tokens, begin, begin + present, made.rows);
  }
  for (std::int64_t t = 0; t < present; ++t) {
    made.q.of[t] = made.rows.q + 2 * t * made.rows.width;
    made.k.of[t] = made.rows.k + 2 * t * made.rows.width;
    made.v.of[t] = chunk.v.of[begin + t];
    made.d_o.of[t] = chunk.d_o.of[begin + t];
    if (!made.is_exact) continue;
    made.exact.q.of[t] = chunk.tokens.q.of[begin + t];
    made.exact.k.of[t] = chunk.tokens.k.of[begin + t];
  }
  for (HalfRows* const rows :
       {&made.q, &made.k, &made.v, &made.d_o, &made.exact.q, &made.exact.k}) {
    for (std::int64_t t = present; t < made.span.padded; ++t) rows->of[t] = task.q.zeros;
  }
}

inline void multiply_floats(float* x, const float* factors, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes) store(x + i, load(x + i) * load(factors + i));
}

inline void fill_floats(float* x, std::int64_t count, float value) {
  for (std::int64_t i = 0; i < count; i += kLanes) store(x + i, broadcast(value));
}

inline void copy_floats(const float* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; i += kLanes) store(to + i, load(from + i));
}

// ---- gradients of the gates ----

// What is behind a span: the state S, and what it is still to decay by, null for 1.
struct StateBehind {
  const float* state = nullptr;
  const float* decay = nullptr;  // [K]
};

// gates[i] = sum_j S[j, i] D[j, i] behind a span, the states kept transposed; 0 where S decays to 0. D is
// rounded as it is for the span's products: what its tokens' k dk are then takes away exactly what they
// had put into S. `decay` is what D is to be multiplied with before it is rounded, `taken_back` the part of
// that which is the span's own, null for 1.
[[gnu::noinline]] inline void sum_product_columns(const StateBehind& behind,
                                                  const TileState& gradient, const float* decay,
                                                  const float* taken_back, float* gates) {
  const std::int64_t rows = gradient.row_tiles * kTileRows;
  for (std::int64_t tile = 0; tile < gradient.column_tiles; ++tile) {
    const float* const d = gradient.floats.at(tile, 0);
    const float* const state = behind.state + (d - gradient.floats.data);
    const F32 before = load(decay + tile * kLanes);
    F32 sums[4] = {};
    for (std::int64_t row = 0; row < rows; row += 4) {
#pragma GCC unroll 2
      for (std::int64_t i = 0; i < 4; i += 2) {
        const std::int64_t at = (row + i) * kLanes;
        const U32 pair = as_bits(pair_bf16(load(d + at) * before, load(d + at + kLanes) * before));
        sums[i] = fma(as_f32(pair << 16), load(state + at), sums[i]);
        sums[i + 1] = fma(as_f32(pair & 0xffff0000U), load(state + at + kLanes), sums[i + 1]);
      }
    }
    F32 sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    if (taken_back) sum *= reciprocal(load(taken_back + tile * kLanes));
    if (behind.decay) {
      const F32 factor = load(behind.decay + tile * kLanes);
      sum = factor == F32{} ? F32{} : sum * factor;
    }
    store(gates + tile * kLanes, sum);
  }
}

// The state S with what it is still to decay by.
[[gnu::noinline]] inline void keep_decayed_state(const TileState& state, const float* decay,
                                                 float* checkpoint) {
  const std::int64_t size = state.row_tiles * kTileFloats;
  for (std::int64_t tile = 0; tile < state.column_tiles; ++tile) {
    const F32 factor = load(decay + tile * kLanes);
    for (std::int64_t i = 0; i < size; i += kLanes) {
      store(checkpoint + tile * size + i, load(state.floats.data + tile * size + i) * factor);
    }
  }
}

// 32 fp32 of a row, `count` of which exist.
[[gnu::always_inline]] inline void write_gates(F32 first, F32 second, std::int64_t count,
                                               char* target, bool stream) {
  if (count < kTileDepth) {
    char tail[128];
    __builtin_memcpy(tail, &first, sizeof(first));
    __builtin_memcpy(tail + sizeof(first), &second, sizeof(second));
    copy_tail(tail, 4 * count, target);
  } else if (stream && reinterpret_cast<std::uintptr_t>(target) % sizeof(F32) == 0) {
    stream_vector(first, target);
    stream_vector(second, target + sizeof(F32));
  } else {
    __builtin_memcpy(target, &first, sizeof(first));
    __builtin_memcpy(target + sizeof(F32), &second, sizeof(second));
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward
