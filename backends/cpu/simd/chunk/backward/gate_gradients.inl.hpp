// Gradients of the gates, a chunk at a time from the end of a segment to its start.
//
// With S_t the state after token t and dS_t the gradient of all that reads it, o_t included, a
// channel's log decay has the gradient (cpu/simd/recurrent_attention/backward/gradients.inl.hpp)
//
//   D_t[i] = E_t[i] + q_t[i] dq_t[i] - k_t[i] dk_t[i]        E_{t-1}[i] = D_t[i]
//
// where E_t[i] = sum_j dS_t[i, j] S_t[i, j] without o_t's part. At the end of each segment E is
// summed up anew from the state that was kept there, so an error of rounding lives no longer than a
// segment. Where all channels share their decay, only sums over channels are kept.
#pragma once

#include "cpu/simd/vector/decays.inl.hpp"
#include "decays.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward {

// gate[c] = sum_r a[r, c] b[r, c]
[[gnu::noinline]] inline void sum_product_columns(const Panels& a, const float* b,
                                                  std::int64_t rows, std::int64_t columns,
                                                  float* gate) {
  for (std::int64_t c = 0; c < columns; c += kLanes) {
    const float* const left = a.at(0, c);
    const float* const right = b + (left - a.data);
    F32 sums[kBlockTokens] = {};  // rows are a multiple of kPanelWidth
    for (std::int64_t r = 0; r < rows; r += kBlockTokens) {
#pragma GCC unroll 4
      for (int i = 0; i < kBlockTokens; ++i) {
        const std::int64_t at = (r + i) * kPanelWidth;
        sums[i] = fma(load(left + at), load(right + at), sums[i]);
      }
    }
    store(gate + c, (sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
}

// gate[r] = sum_c a[r, c] b[r, c]
[[gnu::noinline]] inline void sum_product_rows(const Panels& a, const float* b, std::int64_t rows,
                                               std::int64_t columns, float* gate) {
  for (std::int64_t first = 0; first < rows; first += kLanes) {
    F32 sums[kLanes] = {};
    for (std::int64_t c = 0; c < columns; c += kLanes) {
      const float* const left = a.at(first, c);
      const float* const right = b + (left - a.data);
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) {
        sums[r] = fma(load(left + r * kPanelWidth), load(right + r * kPanelWidth), sums[r]);
      }
    }
    sum_lanes<kLanes>(sums, gate + first);
  }
}

// steps[t] = sum_{s < t} a[t, s] b[t, s] - sum_{u > t} a[u, t] b[u, t]
[[gnu::noinline]] inline void step_pairs(Panels a, Panels b, std::int64_t chunk, float* steps) {
  for (std::int64_t t = 0; t < chunk; t += kLanes) store(steps + t, F32{});
  for (std::int64_t t = 0; t < chunk; t += kLanes) {
    F32 read[kLanes] = {};
    for (std::int64_t s = 0; s <= t; s += kLanes) {
      const F32 source = lane_numbers() + static_cast<float>(s);
      F32 written{};
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        const F32 product = load(a.at(t + i, s)) * load(b.at(t + i, s));
        const F32 below = source < static_cast<float>(t + i) ? product : F32{};
        read[i] += below;
        written += below;
      }
      store(steps + s, load(steps + s) - written);
    }
    alignas(64) float sums[kLanes];
    sum_lanes<kLanes>(read, sums);
    store(steps + t, load(steps + t) + load(sums));
  }
}

// What step_channel_gates() works on, [kChannelChunk, width] each.
struct GateStep {
  Panels terms;                   // q dq or do o; becomes D
  Panels writes;                  // k or v
  Panels dwrites;                 // dk or dv
  const float* shared = nullptr;  // [kChannelChunk] decays of all channels besides, or null
};

// Takes `gate` from E at the last token of a chunk to E before its first one; `totals` [chunk]
// become the sums of D over channels. A channel that a token resets has no gradient there, whatever
// the terms round to; nor has any where `shared` is 0.
[[gnu::noinline]] inline void step_channel_gates(const GateStep& given, const ChannelDecay& decays,
                                                 std::int64_t width, float* gate, float* totals) {
  const GateStep step = given;  // or each store might have changed it
  const Panels of_tokens = decays.decay;
  F32 sums[kChannelChunk] = {};
  for (std::int64_t i = 0; i < width; i += kLanes) {
    F32 gradient = load(gate + i);
#pragma GCC unroll 4
    for (int t = kChannelChunk - 1; t >= 0; --t) {
      const F32 written = load(step.writes.at(t, i)) * load(step.dwrites.at(t, i));
      F32 decay = load(of_tokens.at(t, i));
      if (step.shared) decay *= step.shared[t];
      gradient = gradient + load(step.terms.at(t, i)) - written;
      gradient = decay == F32{} ? F32{} : gradient;
      store(step.terms.at(t, i), gradient);
      sums[t] += gradient;
    }
    store(gate + i, gradient);
  }
  sum_lanes<kChannelChunk>(sums, totals);
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward
