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

#include "segment_sums.inl.hpp"
#include "state_passes.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

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

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
