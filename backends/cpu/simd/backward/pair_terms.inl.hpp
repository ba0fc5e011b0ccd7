// From what a pass sums up over a state to gradients: decays since the state that was read, and the
// terms of pairs of tokens within the pass.
//
// Both sides of the recurrence look alike. Channels of K: q reads, k writes, pairs are the
// products do_t . v_s. Channels of V: do reads, v writes, pairs are scale q_t . k_s. Each product
// carries the decays of the other side between its tokens. Decays are only ever multiplied, as in
// recurrent_prepare.inl.hpp.
#pragma once

#include "cpu/simd/recurrent/recurrent_prepare.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

// The rows of one side at the tokens of a pass.
template <int kTokens>
struct SideRows {
  const float* reads[kTokens];   // q or do
  const float* writes[kTokens];  // k or v
  const float* decays;           // [kTokens, decay_width]
  std::int64_t decay_width;      // one vector when all channels decay alike
  const float* total;            // [decay_width]
  std::int64_t width;            // channels, whole vectors
  bool has_decay;

  bool decays_alike() const { return decay_width == kLanes; }
  std::int64_t decay_step() const { return decays_alike() ? 0 : kLanes; }
};

// sums[t] = scale (a_0 .. a_t sums[t] + sum_{s <= t} pairs[t][s] a_{s+1} .. a_t writes[s]), which
// turns the state before the pass, read by do, into dq, and read by q into o.
template <int kTokens, bool kDecay>
[[gnu::always_inline]] inline void finish_reads(const SideRows<kTokens>& rows, const float* pairs,
                                                float scale, float* sums) {
  const float* decay_row = rows.decays;
  const float* total_row = rows.total;
  for (std::int64_t i = 0; i < rows.width; i += kLanes) {
    F32 written[kTokens];
    F32 prefix{};
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      F32 sum = load(sums + t * rows.width + i);
      if constexpr (kDecay) {
        const F32 decay = load(decay_row + t * rows.decay_width);
#pragma GCC unroll 8
        for (int s = 0; s < t; ++s) written[s] *= decay;
        prefix = t == kTokens - 1 ? load(total_row) : t == 0 ? decay : prefix * decay;
        sum *= prefix;
      }
      written[t] = load(rows.writes[t] + i);
#pragma GCC unroll 8
      for (int s = 0; s <= t; ++s) {
        sum = fma(broadcast(pairs[pair_index(t, s)]), written[s], sum);
      }
      store(sums + t * rows.width + i, sum * scale);
    }
    decay_row += rows.decay_step();
    total_row += rows.decay_step();
  }
}

// sums[t] = a_{t+1} .. a_{n-1} sums[t] + scale sum_{r >= t} pairs[r][t] a_{t+1} .. a_r reads[r],
// which turns the gradient of the state after the pass, read by v, into dk, and read by k into dv.
template <int kTokens, bool kDecay>
[[gnu::always_inline]] inline void finish_writes(const SideRows<kTokens>& rows, const float* pairs,
                                                 float scale, float* sums) {
  const float* decay_row = rows.decays;
  for (std::int64_t i = 0; i < rows.width; i += kLanes) {
    F32 read[kTokens];
    F32 suffix{};
#pragma GCC unroll 8
    for (int t = kTokens - 1; t >= 0; --t) {
      F32 sum = load(sums + t * rows.width + i);
      if (kDecay && t < kTokens - 1) {
        const F32 decay = load(decay_row + (t + 1) * rows.decay_width);
#pragma GCC unroll 8
        for (int r = t + 1; r < kTokens; ++r) read[r] *= decay;
        suffix = t == kTokens - 2 ? decay : suffix * decay;
        sum *= suffix;
      }
      read[t] = load(rows.reads[t] + i) * scale;
#pragma GCC unroll 8
      for (int r = t; r < kTokens; ++r) {
        sum = fma(broadcast(pairs[pair_index(r, t)]), read[r], sum);
      }
      store(sums + t * rows.width + i, sum);
    }
    decay_row += rows.decay_step();
  }
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
