// Spans of at most 16 tokens some of whose decays are too strong to be divided by.
//
// Rows are decayed from the state before the span, and to the one behind it, with factors of one
// and less where decays are: q~_t = q_t a_1 .. a_t and k~_t = k_t a_{t+1} .. a_{n-1}. What the
// span's own tokens give to one another is summed up one by one in fp32. A state decays once it has
// been read.
#pragma once

#include "channel_rows.inl.hpp"
#include "pairs_against.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

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

// own[t] = sum_{s <= t} pairs[t, s] decays[s + 1] .. decays[t] rows[s], of one tile of sums.
// Against the sequence it is the sum over s >= t, with decays[t + 1] .. decays[s].
template <TokenOrder kOrder>
[[gnu::noinline]] void sum_own_exactly(const float* pairs, const HalfRows& rows,
                                       const float* decays, std::int64_t width, float* own) {
  constexpr bool kWith = kOrder == TokenOrder::kWithSequence;
  const auto token = [](std::int64_t index) { return kWith ? index : kTileRows - 1 - index; };
  for (std::int64_t i = 0; i < width; i += kLanes) {
    F32 written[kTileRows];
    for (std::int64_t index = 0; index < kTileRows; ++index) {
      const std::int64_t t = token(index);
      written[t] = rows.vector(t, i);
      F32 sum = written[t] * pairs[t * kLanes + t];
      for (std::int64_t before = 0; before < index; ++before) {
        const std::int64_t s = token(before);
        written[s] *= load(decays + (kWith ? t : t + 1) * width + i);
        sum = fma(broadcast(pairs[t * kLanes + s]), written[s], sum);
      }
      store(own + t * width + i, sum);
    }
  }
}

// The pairs k_t . q_s that decayed rows of the span would have made, in the place of those they
// made: of one tile, as those of a span are.
inline void pair_exactly(const TileKeys& keys, const ExactSpan& span) {
  TileKeys exact = keys;
  exact.token_decays = span.decays;
  exact.channels = keys.width;
  const ChunkRows no_gates{};
  sum_block_pairs_exactly(exact,
                          {.q = span.q, .k = span.k, .gk = no_gates, .log = nullptr, .index = 0});
  F32 sums[kTileRows];
  for (std::int64_t t = 0; t < kTileRows; ++t) sums[t] = load(keys.sums.data + t * kLanes);
  transpose(sums);
  store_rows(keys.sums.data, sums);
  PairJoiningAgainst<false>{.keys = &keys, .factors = {}, .sums = {.tiles = keys.sums}}.run_part(0);
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
