// The gradients of gates, from what each token's pairs gain and lose by its decay (backward.cuh): sums
// from a sequence's last token to its second, in double.
#pragma once

#include <math_constants.h>

#include "cuda/chunks/chunk_walk.cuh"
#include "cuda/pairs/pairs.cuh"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda::pairs {

/// dgamma of a sequence, or its terms.
__device__ __forceinline__ void put_gamma_gradient(const BackwardParams& p, std::int64_t sequence,
                                                   std::int64_t head, float gradient) {
  const GammaOutput& out = p.dgamma;
  const std::int64_t number =
      out.of_chunks ? first_chunk_slot(p.sequences, sequence, span_of(p.sequences, sequence))
                    : sequence;
  float* const to = out.data + number * out.sequence + head * out.head;
  for (int term = channel_of(0); term < out.terms; term += kWarpSize) {
    to[term] = term == 0 ? out.sign * gradient : 0.0F;
  }
}

/// Where the token lies that is processed as a sequence's step-th.
__device__ __forceinline__ std::int64_t token_of_step(const BackwardParams& p,
                                                      const SequenceSpan& span, std::int64_t step) {
  return span.begin + (p.descending ? span.length - 1 - step : step);
}

/// Nothing passes such a token.
__device__ __forceinline__ bool is_reset(float log) { return log == -CUDART_INF_F; }

/// A gate with a decay for every channel of one side.
struct ChannelGate {
  GateTerms terms;
  GateView gate;
  TokenView out;
  int count = 0;  // of channels

  __host__ __device__ std::int64_t tiles() const {
    return out.data == nullptr ? 0 : ceil_div(count, kWarpSize);
  }
};

__host__ __device__ inline ChannelGate gate_of_keys(const BackwardParams& p) {
  return {p.key_terms, p.key_gate, p.dgk, p.keys};
}
__host__ __device__ inline ChannelGate gate_of_values(const BackwardParams& p) {
  return {p.value_terms, p.value_gate, p.dgv, p.values};
}

/// The gradient of 32 channels of one, from the last token on.
template <class T>
__device__ __forceinline__ void channel_gate_gradients(const BackwardParams& p,
                                                       const ChannelGate& of, std::int64_t number) {
  const std::int64_t tiles = of.tiles();
  const std::int64_t head = number / tiles % p.heads;
  const std::int64_t sequence = number / tiles / p.heads;
  const auto channel = static_cast<int>(number % tiles) * kWarpSize + channel_of(0);
  if (channel >= of.count) return;
  const SequenceSpan span = span_of(p.sequences, sequence);
  if (!p.takes(span.length)) return;
  double sum = 0.0;
  constexpr int kTogether = 8;  // tokens, whose loads are under way together
  for (std::int64_t last = span.length - 1; last > 0; last -= kTogether) {
    float gained[kTogether], lost[kTogether], log[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (i >= last) continue;
      const std::int64_t token = token_of_step(p, span, last - i);
      const std::int64_t at =
          ((span.batch * p.sequences.tokens + token) * p.heads + head) * of.count + channel;
      gained[i] = of.terms.gained[at];
      lost[i] = of.terms.lost[at];
      log[i] = shared_log<T>(p, sequence, span.batch, token, head) +
               gate_at<T>(of.gate, row_offset(of.gate.rows, span.batch, token, head) + channel);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (i >= last) continue;
      sum += static_cast<double>(gained[i]) - static_cast<double>(lost[i]);
      if (is_reset(log[i])) sum = 0.0;
      const std::int64_t row =
          row_offset(of.out, span.batch, token_of_step(p, span, last - i), head);
      static_cast<float*>(of.out.data)[row + channel] = static_cast<float>(sum);
    }
  }
}

/// Those of g and g_gamma, a lane a token.
template <class T>
__device__ __forceinline__ void shared_gate_gradients(const BackwardParams& p,
                                                      std::int64_t number) {
  const std::int64_t head = number % p.heads;
  const std::int64_t sequence = number / p.heads;
  const SequenceSpan span = span_of(p.sequences, sequence);
  if (!p.takes(span.length)) return;
  const int lane = channel_of(0);
  double later = 0.0;  // what tokens behind those of the warp have
  double total = 0.0;
  for (std::int64_t last = span.length - 1; last > 0; last -= kWarpSize) {
    const bool is_there = lane < last;
    double sum = 0.0;
    bool ends = false;  // whether a reset is between this token and the last
    const std::int64_t token = token_of_step(p, span, is_there ? last - lane : 1);
    if (is_there) {
      const std::int64_t at = (span.batch * p.sequences.tokens + token) * p.heads + head;
      ends = is_reset(shared_log<T>(p, sequence, span.batch, token, head));
      if (!ends) {
        sum = static_cast<double>(p.shared_terms.gained[at]) -
              static_cast<double>(p.shared_terms.lost[at]);
      }
    }
#pragma unroll
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const double of_later = __shfl_up_sync(kFullWarp, sum, distance);
      const bool later_ends = __shfl_up_sync(kFullWarp, static_cast<int>(ends), distance) != 0;
      if (lane < distance || ends) continue;
      sum += of_later;
      ends = later_ends;
    }
    if (!ends) sum += later;
    later = __shfl_sync(kFullWarp, sum, kWarpSize - 1);
    if (!is_there) continue;
    total += sum;
    if (p.dg.data == nullptr) continue;
    static_cast<float*>(p.dg.data)[row_offset(p.dg, span.batch, token, head)] =
        static_cast<float>(sum);
  }
  if (p.dgamma.data == nullptr) return;
#pragma unroll
  for (int apart = kWarpSize / 2; apart > 0; apart /= 2) {
    total += __shfl_xor_sync(kFullWarp, total, apart);
  }
  put_gamma_gradient(p, sequence, head, static_cast<float>(total));
}

/// Warps for the keys' gates, then for the values', then for those that channels share.
template <class T>
__global__ void gate_gradients(const __grid_constant__ BackwardParams p) {
  take_over_from_previous_launch();
  const std::int64_t heads = p.sequence_count * p.heads;
  const ChannelGate keys = gate_of_keys(p);
  const ChannelGate values = gate_of_values(p);
  std::int64_t number = warp_number();
  if (number < heads * keys.tiles()) return channel_gate_gradients<T>(p, keys, number);
  number -= heads * keys.tiles();
  if (number < heads * values.tiles()) return channel_gate_gradients<T>(p, values, number);
  number -= heads * values.tiles();
  if (number < heads && p.wants_shared_gates()) shared_gate_gradients<T>(p, number);
}

}  // namespace attune::cuda::pairs
