// Gates to decays: exp of what the gates of a few tokens add up to.
#pragma once

#include "cpu/simd/power_of_two.inl.hpp"
#include "f32_rows.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

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
    constexpr float kLeast = -1000.0F;  // for -inf, which must be moved neither way
    const char* const row = gv.row(token);
    const std::int64_t size = size_of(gv.type);
    const std::int64_t whole = channels / kLanes * kLanes;
    F32 lanes = broadcast(kLeast);
    for (std::int64_t i = 0; i < whole; i += kLanes) {
      const F32 gates = widen(gv.type, row + i * size);
      lanes = gates > lanes ? gates : lanes;
    }
    float result = kLeast;
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

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
