// Gradients of the gates, a token at a time from the end of a segment to its start.
//
// With S_t the state after token t and dS_t the gradient of all that reads it, o_t included, the
// gradient of a channel's log decay at token t is D_t[i] = sum_j dS_t[i, j] a_t S_{t-1}[i, j], and
//
//   D_t[i] = E_t[i] + q_t[i] dq_t[i] - k_t[i] dk_t[i]        E_{t-1}[i] = D_t[i]
//
// with E_t the same sum without o_t's part. At the end of each segment E is summed up anew from the
// checkpoint, so an error of rounding lives no longer than a segment. The channels of V obey the
// same with do, o, v and dv.
#pragma once

#include "pair_terms.inl.hpp"
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

// gate[j] = sum_i a[i, j] b[i, j]
inline void sum_product_columns(const Matrix& a, const float* b, float* gate) {
  for (std::int64_t j = 0; j < a.width; j += kLanes) {
    F32 sum{};
    for (std::int64_t row = 0; row < a.rows * a.width; row += a.width) {
      sum = fma(load(a.data + row + j), load(b + row + j), sum);
    }
    store(gate + j, sum);
  }
}

// terms[i] = reads[i] dreads[i]
inline void store_terms(const float* reads, const float* dreads, std::int64_t width, float* terms) {
  for (std::int64_t i = 0; i < width; i += kLanes) {
    store(terms + i, load(reads + i) * load(dreads + i));
  }
}

// Takes `gate` from E at the last token of a pass to E before its first one. The rows of `terms`
// become D_t, those of `totals` its sums over channels. A channel that a token resets has no
// gradient there, whatever the terms round to; nor has any when `other` is 0, the decay that all
// channels of the other side share, [kTokens] vectors or null.
template <int kTokens>
[[gnu::noinline]] void step_gates(const SideRows<kTokens>& rows, const float* other,
                                  const float* dwrites, float* terms, float* gate, float* totals) {
  const float* decay_row = rows.decays;
  F32 sums[kTokens] = {};
  for (std::int64_t i = 0; i < rows.width; i += kLanes) {
    F32 gradient = load(gate + i);
#pragma GCC unroll 8
    for (int t = kTokens - 1; t >= 0; --t) {
      float* const term = terms + t * rows.width + i;
      const F32 written = load(rows.writes[t] + i) * load(dwrites + t * rows.width + i);
      gradient = gradient + load(term) - written;
      F32 decay = load(decay_row + t * rows.decay_width);
      if (other) decay *= load(other + t * kLanes);
      gradient = decay == F32{} ? F32{} : gradient;
      store(term, gradient);
      sums[t] += gradient;
    }
    store(gate + i, gradient);
    decay_row += rows.decay_step();
  }
  sum_lanes<kTokens>(sums, totals);
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
