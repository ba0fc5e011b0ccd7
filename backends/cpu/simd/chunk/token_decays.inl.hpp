// Decays that all channels share (g, gamma and what the other side moves over), token by token, and
// exp of sums of logs.
#pragma once

#include "cpu/simd/recurrent_attention/recurrent_decay.inl.hpp"
#include "panels.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

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

// Decays of tokens: `of_token`, those up to each, itself included, `through`, and those after it,
// `behind`. Returns that over the whole chunk in all lanes; `carries` is one vector.
[[gnu::always_inline]] inline F32 decays_of_tokens(const TokenLogs& logs, std::int64_t chunk,
                                                   float* of_token, float* through, float* behind,
                                                   float* carries) {
  F32 log_sum{};
  for (std::int64_t t = 0; t < chunk; t += kLanes) {
    F32 decay[1] = {load(logs.log + t)};
    log_sum += decay[0];
    exp_each(decay);
    store(of_token + t, decay[0]);
  }
  float product = 1.0F;
  for (std::int64_t t = 0; t < chunk; ++t) through[t] = product *= of_token[t];
  product = 1.0F;
  for (std::int64_t t = chunk; t-- > 0; product *= of_token[t]) behind[t] = product;
  return exp_of_lanes_with_carry(log_sum, carries);
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
