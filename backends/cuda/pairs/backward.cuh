// The gradients: of queries a warp a token of a query head, of keys and values a warp a token of
// one of theirs, in one launch, and of gates a warp a sequence and 32 channels, in one behind it. What
// a sequence's first token has of the latter is 0, as there is nothing before it: of single tokens
// the first launch makes all.
#pragma once

#include <math_constants.h>

#include "cuda/chunks/chunk_walk.cuh"
#include "cuda/pairs/pairs.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
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

/// The gradients of the gates of a sequence's first token.
template <int kPerLane>
__device__ __forceinline__ void clear_gate_gradients(const BackwardParams& p, const OwnToken& own) {
  const auto zeros = all_of<kPerLane>(0.0F);
  const auto clear = [&](const TokenView& view, int count) {
    store_row<float>(view, own.span.batch, own.token, own.head, count, zeros);
  };
  clear(p.dg, 1);
  clear(p.dgk, p.keys);
  clear(p.dgv, p.values);
  if (p.single_tokens && p.dgamma.data != nullptr)
    put_gamma_gradient(p, own.sequence, own.head, 0.0F);
}

/// dq, and what gates gain.
template <class T, int kPerLane, bool kSingleTokens>
__device__ __forceinline__ void query_gradients(const BackwardParams& p, std::int64_t number) {
  const OwnToken own(p, p.heads, number);
  if (!own.is_in_a_sequence) return;
  const std::int64_t batch = own.span.batch;
  const std::int64_t shared_head = quotient(own.head, p.heads_per_kv);
  const int back = p.descending ? 1 : -1;
  const int first = kSingleTokens ? 0 : static_cast<int>(own.step(p));
  WalkedRows<T, kPerLane> k(p.k, batch, own.token, shared_head, p.keys, back);
  WalkedRows<T, kPerLane> v(p.v, batch, own.token, shared_head, p.values, back);
  WalkedGates<T, kPerLane> gates(p, own.sequence, batch, own.token, own.head, back);
  k.ask_for_next();
  v.ask_for_next();
  if (first > 0) gates.ask_for_next();
  const auto q = load_row<T, kPerLane>(p.q, batch, own.token, own.head, p.keys);
  auto d_o = load_row<T, kPerLane>(p.d_o, batch, own.token, own.head, p.values);
  auto past = all_of<kPerLane>(1.0F);  // decays of the key channels
  auto dq = all_of<kPerLane>(0.0F);    // of other tokens
  auto of_itself = dq;
  auto gained = dq;  // of value channels
  for (int step = first;; --step) {
    const float dp = p.scale * warp_sum(part_of_dot(d_o, v));
    if (step == first) {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) of_itself[i] = dp * k[i];
    } else {
      float score = 0.0F;
      if (p.value_terms.gained != nullptr) {
        auto decayed = q;
        multiply(decayed, past);
        score = p.scale * warp_sum(part_of_dot(decayed, k));
      }
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        dq[i] = fmaf(dp * past[i], k[i], dq[i]);
        gained[i] = fmaf(score * d_o[i], v[i], gained[i]);
      }
    }
    if (first == 0) break;
    k.ask_for_next(step > 0);
    v.ask_for_next(step > 0);
    if (step == 0) break;
    gates.decay(past, d_o);
    gates.ask_for_next(step > 1);
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    of_itself[i] += dq[i];
    dq[i] *= q[i];
  }
  if (first > 0) {
    store_terms(p.value_terms.gained, p, batch, own.token, own.head, p.values, gained);
    store_terms(p.key_terms.gained, p, batch, own.token, own.head, p.keys, dq);
    store_sum(p.shared_terms.gained, p, batch, own.token, own.head, dq);
  } else {
    clear_gate_gradients<kPerLane>(p, own);
  }
  store_row<T>(p.dq, batch, own.token, own.head, p.keys, of_itself);
}

/// dk and dv, and what gates lose.
template <class T, int kPerLane, bool kSingleTokens>
__device__ __forceinline__ void key_value_gradients(const BackwardParams& p, std::int64_t number) {
  const OwnToken own(p, p.heads / p.heads_per_kv, number);
  if (!own.is_in_a_sequence) return;
  const std::int64_t batch = own.span.batch;
  const auto k = load_row<T, kPerLane>(p.k, batch, own.token, own.head, p.keys);
  const auto v = load_row<T, kPerLane>(p.v, batch, own.token, own.head, p.values);
  auto dk = all_of<kPerLane>(0.0F);
  auto dv = dk;
  const int first = kSingleTokens ? 0 : static_cast<int>(own.step(p));
  const int last = kSingleTokens ? 0 : static_cast<int>(own.span.length) - 1;
  const int ahead = p.descending ? -1 : 1;
  for (std::int64_t i = 0; i < p.heads_per_kv; ++i) {  // one after the other: always the same sum
    const std::int64_t head = own.head * p.heads_per_kv + i;
    WalkedGates<T, kPerLane> gates(p, own.sequence, batch, own.token + ahead, head, ahead);
    auto past = all_of<kPerLane>(1.0F);         // decays of the key channels
    auto past_values = all_of<kPerLane>(1.0F);  // and of the value channels
    auto dk_of_others = all_of<kPerLane>(0.0F);
    auto dv_of_others = dk_of_others;
    for (int step = first; step <= last; ++step) {
      const std::int64_t token = own.token + ahead * (step - first);
      WalkedRows<T, kPerLane> q(p.q, batch, token, head, p.keys);
      WalkedRows<T, kPerLane> d_o(p.d_o, batch, token, head, p.values);
      q.ask_for_next();
      d_o.ask_for_next();
      if (step > first) gates.decay(past, past_values);
      if (first < last) gates.ask_for_next(step < last);
      auto decayed_q = q.channels();
      auto decayed_d_o = d_o.channels();
      multiply(decayed_q, past);
      multiply(decayed_d_o, past_values);
      const float score = p.scale * warp_sum(part_of_dot(decayed_q, k));
      const float dp = p.scale * warp_sum(part_of_dot(decayed_d_o, v));
#pragma unroll
      for (int c = 0; c < kPerLane; ++c) {
        dk_of_others[c] = fmaf(dp, decayed_q[c], dk_of_others[c]);
        dv_of_others[c] = fmaf(score, decayed_d_o[c], dv_of_others[c]);
      }
      if (step == first) {  // what the token has of itself, no gate loses
#pragma unroll
        for (int c = 0; c < kPerLane; ++c) {
          dk[c] += dk_of_others[c];
          dv[c] += dv_of_others[c];
          dk_of_others[c] = 0.0F;
          dv_of_others[c] = 0.0F;
        }
      }
    }
#pragma unroll
    for (int c = 0; c < kPerLane; ++c) {
      dk[c] += dk_of_others[c];
      dv[c] += dv_of_others[c];
      dk_of_others[c] *= k[c];
      dv_of_others[c] *= v[c];
    }
    if (first == 0) continue;
    store_terms(p.key_terms.lost, p, batch, own.token, head, p.keys, dk_of_others);
    store_sum(p.shared_terms.lost, p, batch, own.token, head, dk_of_others);
    store_terms(p.value_terms.lost, p, batch, own.token, head, p.values, dv_of_others);
  }
  store_row<T>(p.dk, batch, own.token, own.head, p.keys, dk);
  store_row<T>(p.dv, batch, own.token, own.head, p.values, dv);
}

/// `kSingleTokens`: no sequence has more than one, so that there is nothing to go along, and a
/// multiprocessor has room for more warps.
template <class T, int kPerLane, bool kSingleTokens>
__global__ void token_gradients(const __grid_constant__ BackwardParams p) {
  take_over_from_previous_launch();
  const std::int64_t queries = p.rows() * p.heads;
  const std::int64_t number = warp_number();
  if (number < queries) {
    query_gradients<T, kPerLane, kSingleTokens>(p, number);
  } else if (number < queries + p.rows() * p.kv_heads()) {
    key_value_gradients<T, kPerLane, kSingleTokens>(p, number - queries);
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

template <class T>
void launch_backward(const BackwardParams& p, int warps, cudaStream_t stream) {
  const auto shape = [&](std::int64_t count) -> LaunchShape {
    return {.grid = grid_of(ceil_div(count, warps)),
            .block = static_cast<unsigned>(warps * kWarpSize),
            .overlaps_previous = true};
  };
  const LaunchShape tokens = shape(p.rows() * (p.heads + p.kv_heads()));
  with_channels(p.keys > p.values ? p.keys : p.values, [&]<int kPerLane>() {
    with_value<false, true>(p.single_tokens, [&]<bool kSingleTokens>() {
      launch<token_gradients<T, kPerLane, kSingleTokens>>(tokens, stream, p);
    });
  });
  if (p.single_tokens) return;
  const std::int64_t warps_of_head =
      gate_of_keys(p).tiles() + gate_of_values(p).tiles() + (p.wants_shared_gates() ? 1 : 0);
  launch<gate_gradients<T>>(shape(p.sequence_count * p.heads * warps_of_head), stream, p);
}

}  // namespace attune::cuda::pairs
