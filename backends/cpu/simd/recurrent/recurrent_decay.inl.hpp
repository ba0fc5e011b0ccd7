// Gates to decays: exp of what the gates of a few tokens add up to.
#pragma once

#include "cpu/simd/rows.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

// Decays of kTokens tokens, each a row of `width` channels, and over all of them.
struct Decays {
  float* of_token = nullptr;  // [kTokens, width]
  float* total = nullptr;     // [width]
  // Log of what rounding took from the totals so far, [width]. Added to the next pass: a slow
  // constant decay is otherwise off by up to half an ulp in the same direction in every pass, for
  // ever.
  float* carry = nullptr;
  std::int64_t width = 0;  // whole vectors
};

// `gates[t]` is a row of `width` log decays, to which `offset[t]` is added.
template <int kTokens>
[[gnu::always_inline]] inline void exponentiate(const float* const* gates, const float* offset,
                                                const Decays& decays) {
  for (std::int64_t i = 0; i < decays.width; i += kLanes) {
    F32 decay[kTokens + 1];  // of the tokens, then of all of them
    F32& total = decay[kTokens];
    total = load(decays.carry + i);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      decay[t] = load(gates[t] + i) + offset[t];
      total += decay[t];
    }
    store(decays.carry + i, exp_each(decay));
    store(decays.total + i, total);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) store(decays.of_token + t * decays.width + i, decay[t]);
  }
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
