// Gates to decays: exp of what the gates of a few tokens add up to.
#pragma once

#include <cstdint>

#include "exp.inl.hpp"
#include "panels.inl.hpp"
#include "rows.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE {

// Decays of kTokens tokens, each a row of `width` channels, and over all of them.
struct Decays {
  float* of_token = nullptr;  // [kTokens, width]
  float* total = nullptr;     // [width]
  // Log of what the state is owed from before, [width], which decays the next token: what rounding
  // took from the totals so far, as a slow constant decay is otherwise off by up to half an ulp in
  // the same direction in every pass, for ever; and decays that were deferred.
  float* carry = nullptr;
  std::int64_t width = 0;  // whole vectors
};

// Where both sides decay, exp of one side's gates may overflow although that of the sum does not.
// So the largest gate of a token's value channels is moved over to the key side: values then decay
// by at most 1, and keys by as much as the state does.
struct Balance {
  InputRows gv;               // all value channels; null where but one side decays
  std::int64_t channels = 0;  // V
  float sign = 0.0F;          // 1 on the key side, -1 on the value side

  // What is added to a token's log decays on this side.
  float of(std::int64_t token) const { return gv.data ? sign * largest(token) : 0.0F; }

 private:
  float largest(std::int64_t token) const {
    constexpr float kMin = -1000.0F;  // for -inf, which must be moved neither way
    const char* const row = gv.row(token);
    const std::int64_t size = size_of(gv.type);
    const std::int64_t whole = channels / kLanes * kLanes;
    F32 lanes = broadcast(kMin);
    for (std::int64_t i = 0; i < whole; i += kLanes) {
      const F32 gates = widen(gv.type, row + i * size);
      lanes = gates > lanes ? gates : lanes;
    }
    float result = kMin;
    for (int i = 0; i < kLanes; ++i) result = lanes[i] > result ? lanes[i] : result;
    for (std::int64_t i = whole; i < channels; ++i) {
      const float gate = widened_scalar({.data = row + i * size, .type = gv.type}, 0);
      result = gate > result ? gate : result;
    }
    return result;
  }
};

// Logs of decays: rows of gates, and what is added to those of each token.
template <int kTokens>
struct LogDecays {
  F32Rows<const float> gates;
  F32 offset[kTokens];

  void set_offset(int t, float log) { offset[t] = broadcast(log); }
};

// Decays of kTokens tokens in a vector of channels, and over all of them.
template <int kTokens>
struct VectorDecays {
  F32 of_token[kTokens];
  F32 total;
};

// Of the channels from `channel` on. `carry` is theirs.
template <int kTokens>
[[gnu::always_inline]] inline VectorDecays<kTokens> exponentiate(const LogDecays<kTokens>& logs,
                                                                 std::int64_t channel,
                                                                 float* carry) {
  const F32 kScale = broadcast(kLog2OfE);
  F32 decay[kTokens + 1];  // of the tokens, then of all of them
  F32& total = decay[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    // Added up before they are scaled: what cancels then cancels exactly.
    decay[t] = (load(logs.gates.row(t) + channel) + logs.offset[t]) * kScale;
    if (t == 0) decay[0] = fma(load(carry), kScale, decay[0]);
    total = t == 0 ? decay[0] : total + decay[t];
  }
  store(carry, exp2_each(decay));
  VectorDecays<kTokens> result;
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) result.of_token[t] = decay[t];
  result.total = total;
  return result;
}

// Of the channels from `channel` on, into their place.
template <int kTokens>
[[gnu::always_inline]] inline void store_decays(const VectorDecays<kTokens>& vector,
                                                std::int64_t channel, const Decays& decays) {
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    store(decays.of_token + t * decays.width + channel, vector.of_token[t]);
  }
  store(decays.total + channel, vector.total);
}

// ---- the tokens of a chunk ----
//
// Decays that all channels share (g, gamma and what the other side moves over), token by token, and
// exp of sums of logs.

// Log decays per token: those of g, gamma and a balance. 0 behind the last token there is.
struct TokenLogs {
  alignas(64) float log[kMaxChunk];
};

// One element of each row of kLanes tokens.
template <std::size_t... kIndex>
[[gnu::always_inline]] inline F32 widened_scalars(const InputRows& rows, std::int64_t token,
                                                  std::index_sequence<kIndex...>) {
  const auto element = [&]<class Element>(std::size_t i, Element value) {
    __builtin_memcpy(&value, rows.row(token + static_cast<std::int64_t>(i)), sizeof(value));
    return value;
  };
  if (rows.type == StorageType::kF32) return F32{element(kIndex, 0.0F)...};
  const U16 halves{element(kIndex, std::uint16_t{0})...};
  return rows.type == StorageType::kBF16 ? widen_bf16(halves) : widen_f16(halves);
}

// In whole vectors where there are as many tokens: a vector read right after its elements were
// written waits until they have reached the cache.
inline void token_logs(const InputRows& g, float gamma, std::int64_t token, std::int64_t present,
                       std::int64_t chunk, TokenLogs& logs) {
  const std::int64_t padded = round_up_to_lanes(chunk);
  std::int64_t t = 0;
  for (; t + kLanes <= present; t += kLanes) {
    const F32 of_g =
        g.data ? widened_scalars(g, token + t, std::make_index_sequence<kLanes>()) : F32{};
    store(logs.log + t, of_g + gamma);
  }
  for (; t < present; ++t) {
    logs.log[t] = gamma + (g.data ? widened_scalar(g, token + t) : 0.0F);
  }
  for (; t < padded; ++t) logs.log[t] = 0.0F;
}

// Adds what this side takes over from the other.
inline void balance_logs(const Balance& balance, std::int64_t token, std::int64_t present,
                         TokenLogs& logs) {
  if (!balance.gv.data) return;
  for (std::int64_t t = 0; t < present; ++t) logs.log[t] += balance.of(token + t);
}

// Channels that do not exist must not grow by what is added to the logs of all: inf there would
// make NaN of their zeros. `gates` were just made chunk_rows(); `logs` begin with their first
// token.
inline void keep_padding(const RowSource& gates, const float* logs, std::int64_t present) {
  const std::int64_t padded = round_up_to_lanes(gates.elements);
  for (std::int64_t i = gates.elements; i < padded; ++i) {
    for (std::int64_t t = 0; t < present; ++t) {
      gates.buffer[t * padded + i] = logs[t] > 0.0F ? -logs[t] : 0.0F;
    }
  }
}

// x := exp(x + carry), and the carry what rounding took; `width` of them.
inline void exp_with_carry(float* x, float* carry, std::int64_t width) {
  for (std::int64_t i = 0; i < width; i += kLanes) {
    F32 value[1] = {load(x + i) + load(carry + i)};
    store(carry + i, exp_each(value));
    store(x + i, value[0]);
  }
}

// In all lanes, exp of what the lanes of `log_sum` add up to; `carries` is one vector.
[[gnu::always_inline]] inline F32 exp_of_lanes_with_carry(F32 log_sum, float* carries) {
  alignas(64) float total[kLanes];
  sum_lanes<1>(&log_sum, total);
  for (float& lane : total) lane = total[0];
  exp_with_carry(total, carries, kLanes);
  return load(total);
}

// The decays of each token, `of_token`, of those from the start of the chunk through it,
// `from_start`, and of those after it, `to_end`. Returns that of the whole chunk in all lanes;
// `carries` is one vector.
[[gnu::always_inline]] inline F32 decays_of_tokens(const TokenLogs& logs, std::int64_t chunk,
                                                   float* of_token, float* from_start,
                                                   float* to_end, float* carries) {
  F32 log_sum{};
  for (std::int64_t t = 0; t < chunk; t += kLanes) {
    F32 decay[1] = {load(logs.log + t)};
    log_sum += decay[0];
    exp_each(decay);
    store(of_token + t, decay[0]);
  }
  float product = 1.0F;
  for (std::int64_t t = 0; t < chunk; ++t) from_start[t] = product *= of_token[t];
  product = 1.0F;
  for (std::int64_t t = chunk; t-- > 0; product *= of_token[t]) to_end[t] = product;
  return exp_of_lanes_with_carry(log_sum, carries);
}

// ---- gradients of gates over a segment ----
//
// What both backward kernels with sums over segments of tokens do about their rounding.
//
// Within a segment the gradient of a gate is carried on from token to token, and the rounding of
// each stays in those of all tokens before it. In the gradient of a constant decay, their sum, that
// is an error of as many tokens; and the sum may cancel to a hundredth of its terms. But at the end
// of the segment, where the gradient is summed up anew, all of what was left is known.

inline double sum_of(const float* values, std::int64_t count) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]);
  return sum;
}

// The gradient behind a segment of `tokens`, `carried` to there and summed up `anew`: what the
// segment's part of the sum is too large by. The rounding came with one token after the other, so
// half of it is in the gradient of each on average.
inline double excess_of_segment(double carried, double anew, std::int64_t tokens) {
  return (carried - anew) * 0.5 * static_cast<double>(tokens);
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE
