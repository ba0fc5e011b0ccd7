// Passes that leave the decay of the state to a later one.
//
// A pass that decays the state multiplies each of its elements once more, a ninth of what four
// tokens do to it. So the state is kept as U with S = exp(c) U, where c[i] is the sum of the log
// decays of channel i since the state last decayed, c_t that sum through token t, and a pass works
// on U:
//
//   o_t = (scale q_t exp(c_t)) U + sum_{s <= t} scores[t][s] v_s
//   U  += sum_s (k_s exp(-c_s)) v_s
//
// Gates decide, channel by channel, how far that goes: a pass in which one of the sums exceeds
// kMaxDeferredLog decays the state, by the sums so far and by its own tokens
// (cpu/simd/vector/pass_keys.inl.hpp). Strong decays, and gates of -inf, are thus what they are
// there. So does every kMaxDeferred-th pass, which keeps the rounding of the sums small, and the
// one before the state is written.
#pragma once

#include "cpu/simd/vector/pass_keys.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention {

// Sums are rounded by 2.4e-7 at most, once a token.
inline constexpr float kMaxDeferredLog = 8.0F;

// Decays of a few percent add up to no more than that in so many passes.
inline constexpr int kMaxDeferred = 15;

// exp(c) and exp(-c) of kTokens tokens.
template <int kTokens>
struct GrowthAndDecay {
  F32 decay[kTokens];
  F32 growth[kTokens];
};

// To about 1.5 ulp where |log[t]| <= kMaxDeferredLog.
template <int kTokens>
[[gnu::always_inline]] inline GrowthAndDecay<kTokens> growth_and_decay(const F32 (&log)[kTokens]) {
  // 2^r = even(r^2) + r odd(r^2): the polynomial of exp2_each().
  constexpr float kEven[] = {1.53210736e-4F, 9.61852710e-3F, 2.40226475e-1F, 1.0F};
  constexpr float kOdd[] = {1.33902179e-3F, 5.55036216e-2F, 6.93147181e-1F};
  const F32 kScale = broadcast(kLog2OfE);
  const F32 kShift = broadcast(0x1.8p23F);  // rounds to an integer and leaves it in the low bits
  GrowthAndDecay<kTokens> result;
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    const F32 shifted = fma(log[t], kScale, kShift);
    const F32 r = fma(log[t], kScale, kShift - shifted);
    const F32 r2 = r * r;
    F32 even = broadcast(kEven[0]);
    F32 odd = broadcast(kOdd[0]);
#pragma GCC unroll 3
    for (int i = 1; i < 4; ++i) even = fma(even, r2, broadcast(kEven[i]));
#pragma GCC unroll 2
    for (int i = 1; i < 3; ++i) odd = fma(odd, r2, broadcast(kOdd[i]));
    const U32 exponent = as_bits(shifted) << 23;
    result.decay[t] = as_f32(as_bits(fma(r, odd, even)) + exponent);
    result.growth[t] = as_f32(as_bits(fma(-r, odd, even)) - exponent);
  }
  return result;
}

// Whether no lane is larger than `limit`.
[[gnu::always_inline]] inline bool are_at_most(U32 x, std::uint32_t limit) {
#if defined(__AVX512F__) && ATTUNE_SIMD_LANES == 16
  return _mm512_cmpgt_epu32_mask((__m512i)x, (__m512i)(U32{} + limit)) == 0;
#else
  bool are = true;
  for (int i = 0; i < kLanes; ++i) are &= x[i] <= limit;
  return are;
#endif
}

// Leaves in `sums` the sum of the log decays through each token, kTokens vectors for each vector of
// rows, `step` floats apart. Returns whether all of them are small enough to be deferred.
template <int kTokens>
[[gnu::always_inline]] inline bool add_up(const LogDecays<kTokens>& logs, const Decays& decays,
                                          float* sums, std::int64_t step) {
  // As integers, so that infinities and NaNs are the largest.
  U32 largest{};
  for (std::int64_t row = 0; row < decays.width; row += kLanes, sums += step) {
    F32 sum = load(decays.carry + row);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      sum += load(logs.gates.row(t) + row) + logs.offset[t];
      store(sums + t * kLanes, sum);
      const U32 size = as_bits(sum) & 0x7fffffffU;
      largest = size > largest ? size : largest;
    }
  }
  return are_at_most(largest, __builtin_bit_cast(std::uint32_t, kMaxDeferredLog));
}

// The coefficients of a pass that leaves the state undecayed. Where rows decay one by one, theirs
// hold the sums of add_up() in place of q.
template <int kTokens, RowDecay kRowDecay>
[[gnu::always_inline]] inline void weigh_deferred_keys(const KeySide& side,
                                                       const F32Rows<const float>& q_rows,
                                                       const F32Rows<const float>& k_rows,
                                                       float* coefficients, float* scores) {
  const F32 scale = broadcast(side.scale);
  GrowthAndDecay<kTokens> factors;
  const auto read_factors = [&](std::int64_t row) {
    F32 sums[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) sums[t] = load(coefficients + t * kLanes);
    store(side.decays.carry + row, sums[kTokens - 1]);
    factors = growth_and_decay<kTokens>(sums);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) factors.decay[t] *= scale;
  };
  if constexpr (kRowDecay == RowDecay::kShared) read_factors(0);
  F32 products[pair_count(kTokens)];
#pragma GCC unroll 64
  for (F32& product : products) product = F32{};
  for (std::int64_t row = 0; row < side.rows; row += kLanes) {
    if constexpr (kRowDecay == RowDecay::kPerRow) read_factors(row);
    F32 written[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const F32 q = load(q_rows.row(t) + row) * factors.decay[t];
      written[t] = load(k_rows.row(t) + row) * factors.growth[t];
#pragma GCC unroll 8
      for (int s = 0; s <= t; ++s) {
        products[pair_index(t, s)] = fma(q, written[s], products[pair_index(t, s)]);
      }
      store(coefficients + t * kLanes, q);
      store(coefficients + (kTokens + t) * kLanes, written[t]);
    }
    coefficients += coefficient_vectors(kTokens) * kLanes;
  }
  sum_lanes<pair_count(kTokens)>(products, scores);
}

// The keys of a pass. `decays_state` says whether it has to decay the state, and afterwards whether
// it does.
template <int kTokens>
[[gnu::noinline]] void prepare_deferring_keys(const KeySide& side, std::int64_t token,
                                              float* coefficients, float* scores,
                                              bool& decays_state) {
  if (decays_state) return prepare_keys<kTokens>(side, token, coefficients, scores);
  const LogDecays<kTokens> logs = key_logs<kTokens>(side, token);
  if (!add_up<kTokens>(logs, side.decays, coefficients, coefficient_vectors(kTokens) * kLanes)) {
    decays_state = true;
    return prepare_keys<kTokens>(side, token, coefficients, scores);
  }
  const std::int64_t padded_rows = round_up_to_lanes(side.rows);
  const F32Rows<const float> q =
      widened_rows<kTokens>(side.q, token, side.rows, {side.q_rows, padded_rows});
  const F32Rows<const float> k =
      widened_rows<kTokens>(side.k, token, side.rows, {side.k_rows, padded_rows});
  if (side.decays.width > kLanes) {
    weigh_deferred_keys<kTokens, RowDecay::kPerRow>(side, q, k, coefficients, scores);
  } else {
    weigh_deferred_keys<kTokens, RowDecay::kShared>(side, q, k, coefficients, scores);
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention
