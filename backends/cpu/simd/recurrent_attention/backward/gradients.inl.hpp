// Gradients of the gates, a token at a time from the end of a segment to its start.
//
// With S_t the state after token t and dS_t the gradient of all that reads it, o_t included, the
// gradient of a channel's log decay at token t is D_t[i] = sum_j dS_t[i, j] a_t S_{t-1}[i, j], and
//
//   D_t[i] = E_t[i] + q_t[i] dq_t[i] - k_t[i] dk_t[i]        E_{t-1}[i] = D_t[i]
//
// with E_t the same sum without o_t's part. At the end of each segment E is summed up anew from the
// checkpoint, so an error of rounding lives no longer than a segment. The channels of V obey the
// same with do, o, v and dv. Where channels decay alike only their sum is wanted, and there is one
// vector of partial sums instead of all channels.
#pragma once

#include "column_sums.inl.hpp"
#include "cpu/simd/vector/decays.inl.hpp"
#include "cpu/simd/vector/pass_keys.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward {

// gate[i] = sum_j a[i, j] b[i, j], for whole vectors of rows.
inline void sum_product_rows(const Matrix& a, const float* b, float* gate) {
  for (std::int64_t first = 0; first < a.rows; first += kLanes) {
    F32 sums[kLanes] = {};
    for (std::int64_t r = 0; r < kLanes && first + r < a.rows; ++r) {
      const std::int64_t row = (first + r) * a.width;
      for (std::int64_t j = 0; j < a.width; j += kLanes) {
        sums[r] = fma(load(a.data + row + j), load(b + row + j), sums[r]);
      }
    }
    sum_lanes<kLanes>(sums, gate + first);
  }
}

// gate[j] = sum_i a[i, j] b[i, j], in a few sums that do not wait for one another.
inline void sum_product_columns(const Matrix& a, const float* b, float* gate) {
  constexpr int kSums = 4;
  for (std::int64_t j = 0; j < a.width; j += kLanes) {
    F32 sums[kSums] = {};
    std::int64_t i = 0;
    for (; i + kSums <= a.rows; i += kSums) {
#pragma GCC unroll 4
      for (int r = 0; r < kSums; ++r) {
        const std::int64_t at = (i + r) * a.width + j;
        sums[r] = fma(load(a.data + at), load(b + at), sums[r]);
      }
    }
    for (; i < a.rows; ++i) {
      sums[0] = fma(load(a.data + i * a.width + j), load(b + i * a.width + j), sums[0]);
    }
    store(gate + j, (sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
}

// gate[lane] = the sum over all vectors of a row of channels that decay alike.
inline void fold_vectors(float* gate, std::int64_t width) {
  F32 sum = load(gate);
  for (std::int64_t i = kLanes; i < width; i += kLanes) sum += load(gate + i);
  store(gate, sum);
}

// What a pass does to the gates of a side, rows of as many channels as decay by themselves.
struct GateStep {
  // The decay that all channels of the other side share, a vector a token, or null.
  const float* other = nullptr;
  float* terms = nullptr;   // [kTokens] rows, which become D_t
  float* gate = nullptr;    // from E at the last token of a pass to E before its first one
  float* totals = nullptr;  // [kTokens] sums of D_t over channels
};

// One vector of channels, whose tokens decay by `decays`, of which each has `written` k dk. A
// channel that a token resets has no gradient there, whatever the terms round to; nor has any where
// `other` is 0.
template <int kTokens>
[[gnu::always_inline]] inline void step_gates(const GateStep& step, const float* decays,
                                              std::int64_t decay_width, std::int64_t channel,
                                              const F32* written, F32* sums) {
  F32 gradient = load(step.gate + channel);
#pragma GCC unroll 8
  for (int t = kTokens - 1; t >= 0; --t) {
    float* const term = step.terms + t * decay_width + channel;
    gradient = gradient + load(term) - written[t];
    F32 decay = load(decays + t * decay_width);
    if (step.other) decay *= load(step.other + t * kLanes);
    gradient = decay == F32{} ? F32{} : gradient;
    store(term, gradient);
    sums[t] += gradient;
  }
  store(step.gate + channel, gradient);
}

// ---- scores of pairs of tokens ----
//
// From what a pass sums up over a state to gradients: decays since the state that was read, and the
// terms of pairs of tokens within the pass.
//
// Both sides of the recurrence look alike. Channels of K: q reads, k writes, pairs are the
// products do_t . v_s. Channels of V: do reads, v writes, pairs are scale q_t . k_s. Each product
// carries the decays of the other side between its tokens. Decays are only ever multiplied, as in
// cpu/simd/vector/pass_keys.inl.hpp.

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
    F32 from_start{};
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      F32 sum = load(sums + t * rows.width + i);
      if constexpr (kDecay != RowDecay::kNone) {
        const F32 decay = load(decay_row + t * decay_width);
#pragma GCC unroll 8
        for (int s = 0; s < t; ++s) written[s] *= decay;
        from_start = t == kTokens - 1 ? load(total_row) : t == 0 ? decay : from_start * decay;
        sum *= from_start;
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
    F32 to_end{};
#pragma GCC unroll 8
    for (int t = kTokens - 1; t >= 0; --t) {
      F32 sum = load(sums + t * rows.width + i);
      if (kDecay != RowDecay::kNone && t < kTokens - 1) {
        const F32 decay = load(decay_row + (t + 1) * decay_width);
#pragma GCC unroll 8
        for (int r = t + 1; r < kTokens; ++r) read[r] *= decay;
        to_end = t == kTokens - 2 ? decay : to_end * decay;
        sum *= to_end;
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

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward
