// The rows of a chunk whose channels of K decay each on its own.
//
// A chunk is cut into spans, mostly one. With a_t[i] the decay of channel i at token t of a span
// 0 .. n-1, and what it decays by since the first token
//
//   r_t[i] = a_1[i] .. a_t[i], r_0 = 1,    q~_t = q_t r_t,    k~_t = k_t / r_t
//
// what token s writes has decayed by r_t / r_s when token t reads it: the two are factors of rows,
// and products are those of a recurrence without decays. A span ends before the log of an r
// exceeds kMaxLog, so the division loses nothing; a_0 is applied to the state, and may be 0.
// Where a chunk is cut, r begins with what makes the largest and the least of its logs equally far
// from 0, and a_0 is divided by that. Where even so a span would have fewer than 16 tokens,
// channel_rows.inl.hpp takes as many.
#pragma once

#include "recurrence.inl.hpp"
#include "scores.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward {

struct ChannelInputs {
  HalfSource q, k;  // `copies` [chunk, K]: of rows that cannot be read where they lie
  RowSource gk;     // `buffer` [chunk, K]
  InputRows g;
  float gamma = 0.0F;
  std::int64_t width = 0;  // K in whole 32s
};

// A chunk as it is given.
struct ChannelTokens {
  HalfRows q, k;
  const float* gates[kMaxChunk];
  TokenLogs shared;  // added to all gates of a token
};

[[gnu::noinline]] inline void rows_in_place(const HalfSource& source, const ChunkSpan& chunk,
                                            HalfRows& rows) {
  if (source.elements % kTileDepth != 0) {
    return half_rows(source, chunk.token, chunk.present, chunk.present, rows);
  }
  for (std::int64_t t = 0; t < chunk.present; ++t) rows.of[t] = source.rows.row(chunk.token + t);
}

// What is behind K in `buffer` is zero and stays so.
[[gnu::noinline]] inline void gates_in_place(const RowSource& source, const ChunkSpan& chunk,
                                             std::int64_t width, const float** gates) {
  const bool is_direct = source.rows.type == StorageType::kF32 && source.elements == width;
  for (std::int64_t t = 0; t < chunk.present; ++t) {
    const char* const row = source.rows.row(chunk.token + t);
    float* const copy = source.buffer + t * width;
    if (!is_direct) widen_row(source.rows.type, row, source.elements, copy);
    // An fp32 tensor holds floats, aligned as such.
    gates[t] = is_direct ? reinterpret_cast<const float*>(row) : copy;
  }
}

inline void channel_tokens(const ChannelInputs& inputs, const ChunkSpan& chunk,
                           ChannelTokens& tokens) {
  rows_in_place(inputs.q, chunk, tokens.q);
  rows_in_place(inputs.k, chunk, tokens.k);
  gates_in_place(inputs.gk, chunk, inputs.width, tokens.gates);
  token_logs(inputs.g, inputs.gamma, chunk.token, chunk.present, chunk.padded, tokens.shared);
}

// Where what decay_rows() makes of a chunk goes: [chunk, K] each, but for the last two.
struct ChannelRows {
  char* q = nullptr;        // q~ in bf16
  char* k = nullptr;        // k~ in bf16
  float* decays = nullptr;  // r
  float* first = nullptr;   // [K]: a_0 of a span
  float* total = nullptr;   // [K]: r of its last token
  std::int64_t width = 0;

  ChannelRows from(std::int64_t token) const {
    ChannelRows rows = *this;
    rows.q += 2 * token * width;
    rows.k += 2 * token * width;
    rows.decays += token * width;
    return rows;
  }
};

// 1 / x to about 2^-23 of it, for what is far from the ends of a float.
[[gnu::always_inline]] inline F32 reciprocal(F32 x) {
#if defined(__AVX512F__) && ATTUNE_SIMD_LANES == 16
  const F32 about = (F32)_mm512_maskz_rcp14_ps(__mmask16(-1), (__m512)x);
  return about * (broadcast(2.0F) - x * about);
#else
  return broadcast(1.0F) / x;
#endif
}

// The tokens of a span, and what the logs of r begin with.
struct SpanTokens {
  const ChannelTokens& of_chunk;
  std::int64_t begin, end;
  const float* centers = nullptr;  // [K]; null for 0

  [[gnu::always_inline]] F32 gate(std::int64_t t, std::int64_t channel) const {
    return load(of_chunk.gates[t] + channel) + of_chunk.shared.log[t];
  }
  [[gnu::always_inline]] F32 center(std::int64_t channel) const {
    return centers ? load(centers + channel) : F32{};
  }
};

// Of 32 channels. Returns the largest magnitudes of a log of r.
[[gnu::noinline]] inline F32 decay_channels(const SpanTokens& span, std::int64_t channel,
                                            const ChannelRows& to) {
  const HalfRows& q = span.of_chunk.q;
  const HalfRows& k = span.of_chunk.k;
  F32 log[2];
  F32 first[2];
  F32 decay[2] = {};
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const std::int64_t i = channel + half * kLanes;
    log[half] = span.center(i);
    first[half] = span.gate(span.begin, i) - log[half];
  }
  exp_each(first);
  F32 largest{};
  for (std::int64_t t = span.begin; t < span.end; ++t) {
    const std::int64_t at = (t - span.begin) * to.width + channel;
    F32 inverse[2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      if (t > span.begin) log[half] += span.gate(t, channel + half * kLanes);
      const F32 magnitude = as_f32(as_bits(log[half]) & 0x7fffffffU);
      // The other way round a NaN would pass.
      largest = magnitude <= largest ? largest : magnitude;
      decay[half] = log[half];
    }
    exp_each(decay);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      inverse[half] = reciprocal(decay[half]);
      store(to.decays + at + half * kLanes, decay[half]);
    }
    const F32 decayed_q =
        join_bf16(q.vector(t, channel) * decay[0], q.vector(t, channel + kLanes) * decay[1]);
    const F32 decayed_k =
        join_bf16(k.vector(t, channel) * inverse[0], k.vector(t, channel + kLanes) * inverse[1]);
    __builtin_memcpy(to.q + 2 * at, &decayed_q, sizeof(decayed_q));
    __builtin_memcpy(to.k + 2 * at, &decayed_k, sizeof(decayed_k));
  }
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    store(to.first + channel + half * kLanes, first[half]);
    store(to.total + channel + half * kLanes, decay[half]);
  }
  return largest;
}

// Rows of a span; `to` is where its first ones go. Returns whether it is one: whether no log of r
// exceeds kMaxLog.
inline bool decay_rows(const SpanTokens& span, const ChannelRows& to) {
  F32 largest{};
  for (std::int64_t i = 0; i < to.width; i += kTileDepth) {
    const F32 of_channels = decay_channels(span, i, to);
    largest = of_channels <= largest ? largest : of_channels;
  }
  return is_small(largest);
}

// Of the logs of r of a channel since the first token of a span.
struct LogRange {
  F32 log{}, least{}, largest{};

  void add(F32 gate) {
    log += gate;
    least = log < least ? log : least;
    largest = log > largest ? log : largest;
  }
  // Whether they are within kMaxLog of their center.
  bool is_small_around_center() const {
    // The sum is not a number where a log is not.
    return is_small((largest - least) * 0.5F + log * 0.0F);
  }
};

[[gnu::always_inline]] inline LogRange range_of(const SpanTokens& span, std::int64_t channel) {
  LogRange range;
  for (std::int64_t t = span.begin + 1; t < span.end; ++t) range.add(span.gate(t, channel));
  return range;
}

// Where the span that begins at a token ends, at `end` or before.
[[gnu::noinline]] inline std::int64_t end_of_span(const ChannelTokens& tokens, std::int64_t width,
                                                  std::int64_t begin, std::int64_t end) {
  SpanTokens span{.of_chunk = tokens, .begin = begin, .end = end};
  for (std::int64_t i = 0; i < width; i += kLanes) {
    // A range only grows: asked for once where it is small, which is costly to ask.
    if (range_of(span, i).is_small_around_center()) continue;
    LogRange range;
    for (std::int64_t t = begin + 1; t < span.end; ++t) {
      range.add(span.gate(t, i));
      if (!range.is_small_around_center()) span.end = t;
    }
  }
  return span.end;
}

[[gnu::noinline]] inline void center_logs(const SpanTokens& span, std::int64_t width,
                                          float* centers) {
  for (std::int64_t i = 0; i < width; i += kLanes) {
    const LogRange range = range_of(span, i);
    store(centers + i, (range.largest + range.least) * -0.5F);
  }
}

// The spans of a chunk: [begin[i], begin[i + 1]).
struct ChannelSpans {
  std::int64_t count = 0;
  std::int64_t begin[kMaxChunk + 1];
  bool is_exact[kMaxChunk];  // cut where 16 tokens are, whatever their decays
};

inline void cut_chunk(const ChannelTokens& tokens, std::int64_t width, std::int64_t present,
                      ChannelSpans& spans) {
  spans.count = 0;
  std::int64_t begin = 0;
  while (begin < present) {
    const std::int64_t enough = present - begin < kTileRows ? present : begin + kTileRows;
    const std::int64_t end = end_of_span(tokens, width, begin, present);
    spans.is_exact[spans.count] = end < enough;
    spans.begin[spans.count++] = begin;
    begin = end < enough ? enough : end;
  }
  spans.begin[spans.count] = present;
}

// ---- spans of strong decays ----
//
// Spans of at most 16 tokens some of whose decays are too strong to be divided by.
//
// Rows are decayed from the state before the span, and to the one behind it, with factors of one
// and less where decays are: q~_t = q_t a_1 .. a_t and k~_t = k_t a_{t+1} .. a_{n-1}. What the
// span's own tokens give to one another is summed up one by one in fp32. A state decays once it has
// been read.

// Besides the rows of a span; [16, K] each.
struct ExactSpan {
  HalfRows q, k;            // as they are given
  float* decays = nullptr;  // a_t; 1 behind the span
  float* behind = nullptr;  // from a token to the end of the span
  float* own = nullptr;     // what the span's own tokens give to a gradient
};

// `to.decays` are those from the state to a token.
[[gnu::noinline]] inline void exact_rows(const ChannelTokens& tokens, std::int64_t begin,
                                         std::int64_t end, const ChannelRows& to,
                                         const ExactSpan& exact) {
  const std::int64_t count = end - begin;
  for (std::int64_t i = 0; i < to.width; i += kLanes) {
    F32 decay[kTileRows];
    for (std::int64_t t = 0; t < kTileRows; ++t) {
      F32 power[1] = {F32{}};
      if (t < count) power[0] = load(tokens.gates[begin + t] + i) + tokens.shared.log[begin + t];
      exp_each(power);
      decay[t] = power[0];
      store(exact.decays + t * to.width + i, decay[t]);
    }
    F32 through = broadcast(1.0F);
    for (std::int64_t t = 0; t < count; ++t) {
      if (t > 0) through *= decay[t];
      store(to.decays + t * to.width + i, through);
      const U16 q = narrow_bf16(tokens.q.vector(begin + t, i) * through);
      __builtin_memcpy(to.q + 2 * (t * to.width + i), &q, sizeof(q));
    }
    store(to.first + i, decay[0]);
    store(to.total + i, through);
    F32 behind = broadcast(1.0F);
    for (std::int64_t t = count; t-- > 0; behind *= decay[t]) {
      store(exact.behind + t * to.width + i, behind);
      const U16 k = narrow_bf16(tokens.k.vector(begin + t, i) * behind);
      __builtin_memcpy(to.k + 2 * (t * to.width + i), &k, sizeof(k));
    }
  }
}

// own[t] = sum_{s <= t} scores[t, s] decays[s + 1] .. decays[t] rows[s], of one tile of sums.
// Against the sequence it is the sum over s >= t, with decays[t + 1] .. decays[s].
template <TokenOrder kOrder>
[[gnu::noinline]] void sum_own_exactly(const float* scores, const HalfRows& rows,
                                       const float* decays, std::int64_t width, float* own) {
  constexpr bool kWith = kOrder == TokenOrder::kWithSequence;
  const auto token = [](std::int64_t index) { return kWith ? index : kTileRows - 1 - index; };
  for (std::int64_t i = 0; i < width; i += kLanes) {
    F32 written[kTileRows];
    for (std::int64_t index = 0; index < kTileRows; ++index) {
      const std::int64_t t = token(index);
      written[t] = rows.vector(t, i);
      F32 sum = written[t] * scores[t * kLanes + t];
      for (std::int64_t before = 0; before < index; ++before) {
        const std::int64_t s = token(before);
        written[s] *= load(decays + (kWith ? t : t + 1) * width + i);
        sum = fma(broadcast(scores[t * kLanes + s]), written[s], sum);
      }
      store(own + t * width + i, sum);
    }
  }
}

// The scores k_t . q_s that decayed rows of the span would have made, in the place of those they
// made: of one tile, as those of a span are.
inline void pair_exactly(const TileKeys& keys, const ExactSpan& span) {
  TileKeys exact = keys;
  exact.token_decays = span.decays;
  exact.channels = keys.width;
  const ChunkRows no_gates{};
  sum_block_scores_exactly(exact,
                           {.q = span.q, .k = span.k, .gk = no_gates, .log = nullptr, .index = 0});
  F32 sums[kTileRows];
  for (std::int64_t t = 0; t < kTileRows; ++t) sums[t] = load(keys.sums.data + t * kLanes);
  transpose(sums);
  store_rows(keys.sums.data, sums);
  ScoreJoiningAgainst<false>{.keys = &keys, .factors = {}, .sums = {.tiles = keys.sums}}.run_part(
      0);
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward
