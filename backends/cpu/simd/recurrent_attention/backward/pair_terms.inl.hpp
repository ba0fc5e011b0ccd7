// From what a pass sums up over a state to gradients: decays since the state that was read, and the
// terms of pairs of tokens within the pass.
//
// Both sides of the recurrence look alike. Channels of K: q reads, k writes, pairs are the
// products do_t . v_s. Channels of V: do reads, v writes, pairs are scale q_t . k_s. Each product
// carries the decays of the other side between its tokens. Decays are only ever multiplied, as in
// recurrent_prepare.inl.hpp.
#pragma once

#include "cpu/simd/recurrent_attention/recurrent_prepare.inl.hpp"
#include "gate_gradients.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

// The rows of one side at the tokens of a pass.
template <int kTokens>
struct SideRows {
  const float* reads[kTokens];   // q or do
  const float* writes[kTokens];  // k or v
  std::int64_t width;            // channels, whole vectors
  RowDecay decay;
  const float* decays;  // [kTokens, decay_width], one vector wide where all channels decay alike
  const float* total;   // [decay_width]
  float* sums;          // [kTokens, width] what is added up over the state, then dq, dk or dv
};

// sums[t] = scale (a_0 .. a_t sums[t] + sum_{s <= t} pairs[t][s] a_{s+1} .. a_t writes[s]), which
// turns the state before the pass, read by do, into dq, and read by q into o. Where there are
// decays `terms` become reads[t] sums[t], [kTokens, decay_width].
template <int kTokens, RowDecay kDecay>
[[gnu::always_inline]] inline void finish_reads_of(const SideRows<kTokens>& rows,
                                                   const float* pairs, float scale, float* terms) {
  constexpr std::int64_t kDecayStep = kDecay == RowDecay::kPerRow ? kLanes : 0;
  const std::int64_t decay_width = kDecay == RowDecay::kShared ? kLanes : rows.width;
  const float* decay_row = rows.decays;
  float* const sums = rows.sums;
  const float* total_row = rows.total;
  F32 shared_terms[kTokens] = {};
  for (std::int64_t i = 0; i < rows.width; i += kLanes) {
    F32 written[kTokens];
    F32 prefix{};
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      F32 sum = load(sums + t * rows.width + i);
      if constexpr (kDecay != RowDecay::kNone) {
        const F32 decay = load(decay_row + t * decay_width);
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
      sum *= scale;
      store(sums + t * rows.width + i, sum);
      if constexpr (kDecay == RowDecay::kPerRow) {
        store(terms + t * decay_width + i, load(rows.reads[t] + i) * sum);
      } else if constexpr (kDecay == RowDecay::kShared) {
        shared_terms[t] = fma(load(rows.reads[t] + i), sum, shared_terms[t]);
      }
    }
    decay_row += kDecayStep;
    total_row += kDecayStep;
  }
  if constexpr (kDecay == RowDecay::kShared) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) store(terms + t * kLanes, shared_terms[t]);
  }
}

template <int kTokens>
[[gnu::noinline]] void finish_reads(const SideRows<kTokens>& rows, const float* pairs, float scale,
                                    float* terms) {
  switch (rows.decay) {
    case RowDecay::kNone:
      return finish_reads_of<kTokens, RowDecay::kNone>(rows, pairs, scale, terms);
    case RowDecay::kShared:
      return finish_reads_of<kTokens, RowDecay::kShared>(rows, pairs, scale, terms);
    case RowDecay::kPerRow:
      return finish_reads_of<kTokens, RowDecay::kPerRow>(rows, pairs, scale, terms);
  }
}

// sums[t] = a_{t+1} .. a_{n-1} sums[t] + scale sum_{r >= t} pairs[r][t] a_{t+1} .. a_r reads[r],
// which turns the gradient of the state after the pass, read by v, into dk, and read by k into dv.
// Where there are decays `step` takes the gates along.
template <int kTokens, RowDecay kDecay>
[[gnu::always_inline]] inline void finish_writes_of(const SideRows<kTokens>& rows,
                                                    const float* pairs, float scale,
                                                    const GateStep& step) {
  constexpr std::int64_t kDecayStep = kDecay == RowDecay::kPerRow ? kLanes : 0;
  const std::int64_t decay_width = kDecay == RowDecay::kShared ? kLanes : rows.width;
  const float* decay_row = rows.decays;
  float* const sums = rows.sums;
  F32 written[kTokens] = {};  // k dk
  F32 totals[kTokens] = {};
  for (std::int64_t i = 0; i < rows.width; i += kLanes) {
    F32 read[kTokens];
    F32 suffix{};
#pragma GCC unroll 8
    for (int t = kTokens - 1; t >= 0; --t) {
      F32 sum = load(sums + t * rows.width + i);
      if (kDecay != RowDecay::kNone && t < kTokens - 1) {
        const F32 decay = load(decay_row + (t + 1) * decay_width);
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
      if constexpr (kDecay == RowDecay::kPerRow) written[t] = load(rows.writes[t] + i) * sum;
      if constexpr (kDecay == RowDecay::kShared) {
        written[t] = fma(load(rows.writes[t] + i), sum, written[t]);
      }
    }
    if constexpr (kDecay == RowDecay::kPerRow) {
      step_gates<kTokens>(step, decay_row, decay_width, i, written, totals);
    }
    decay_row += kDecayStep;
  }
  if constexpr (kDecay == RowDecay::kShared) {
    step_gates<kTokens>(step, decay_row, decay_width, 0, written, totals);
  }
  if constexpr (kDecay != RowDecay::kNone) sum_lanes<kTokens>(totals, step.totals);
}

template <int kTokens>
[[gnu::noinline]] void finish_writes(const SideRows<kTokens>& rows, const float* pairs, float scale,
                                     const GateStep& step) {
  switch (rows.decay) {
    case RowDecay::kNone:
      return finish_writes_of<kTokens, RowDecay::kNone>(rows, pairs, scale, step);
    case RowDecay::kShared:
      return finish_writes_of<kTokens, RowDecay::kShared>(rows, pairs, scale, step);
    case RowDecay::kPerRow:
      return finish_writes_of<kTokens, RowDecay::kPerRow>(rows, pairs, scale, step);
  }
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
