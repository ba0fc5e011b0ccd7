// The gradients: of queries a warp a token of a query head, of keys and values a warp a token of
// one of theirs, and of gates a warp a sequence and 32 channels.
#pragma once

#include <math_constants.h>

#include "cuda/parallel/pairs.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::parallel {

/// dq, and what gates gain.
template <class T, int kPerLane>
__global__ void query_gradients(const __grid_constant__ BackwardParams p) {
  const std::int64_t number = warp_number();
  if (number >= p.rows() * p.heads) return;
  const OwnToken own(p, p.heads, number);
  if (!own.is_in_a_sequence) return;
  const std::int64_t batch = own.span.batch;
  const std::int64_t shared_head = own.head / p.heads_per_kv;
  const auto q = load_row<T, kPerLane>(p.q, batch, own.token, own.head, p.keys);
  auto d_o = load_row<T, kPerLane>(p.d_o, batch, own.token, own.head, p.values);
  auto past = all_of<kPerLane>(1.0F);  // decays of the key channels
  auto dq = all_of<kPerLane>(0.0F);    // of other tokens
  auto of_itself = dq;
  auto gained = dq;  // of value channels
  const std::int64_t first = own.step(p);
  for (std::int64_t step = first;; --step) {
    const std::int64_t token = own.token_of(p, step);
    const auto k = load_row<T, kPerLane>(p.k, batch, token, shared_head, p.keys);
    const auto v = load_row<T, kPerLane>(p.v, batch, token, shared_head, p.values);
    const float shared = shared_log<T>(p, own.sequence, batch, token, own.head);
    const auto decays = decays_of<T, kPerLane>(p.key_gate, shared, batch, token, own.head, p.keys);
    const float dp = p.scale * dot(d_o, v);
    if (step == first) {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) of_itself[i] = dp * k[i];
    } else {
      float score = 0.0F;
      if (p.value_terms.gained != nullptr) {
        Channels<kPerLane> decayed;
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) decayed[i] = q[i] * past[i];
        score = p.scale * dot(decayed, k);
      }
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        dq[i] = fmaf(dp * past[i], k[i], dq[i]);
        gained[i] = fmaf(score * d_o[i], v[i], gained[i]);
      }
    }
    if (step == 0) break;
    multiply(past, decays);
    if (p.value_gate.given()) {
      multiply(d_o, decays_of<T, kPerLane>(p.value_gate, 0.0F, batch, token, own.head, p.values));
    }
  }
  store_terms(p.value_terms.gained, p, batch, own.token, own.head, p.values, gained);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    of_itself[i] += dq[i];
    dq[i] *= q[i];
  }
  store_terms(p.key_terms.gained, p, batch, own.token, own.head, p.keys, dq);
  store_row<T>(p.dq, batch, own.token, own.head, p.keys, of_itself);
}

/// dk and dv, and what gates lose.
template <class T, int kPerLane>
__global__ void key_value_gradients(const __grid_constant__ BackwardParams p) {
  const std::int64_t number = warp_number();
  if (number >= p.rows() * (p.heads / p.heads_per_kv)) return;
  const OwnToken own(p, p.heads / p.heads_per_kv, number);
  if (!own.is_in_a_sequence) return;
  const std::int64_t batch = own.span.batch;
  const auto k = load_row<T, kPerLane>(p.k, batch, own.token, own.head, p.keys);
  const auto v = load_row<T, kPerLane>(p.v, batch, own.token, own.head, p.values);
  auto dk = all_of<kPerLane>(0.0F);
  auto dv = dk;
  const std::int64_t first = own.step(p);
  for (std::int64_t i = 0; i < p.heads_per_kv; ++i) {  // one after the other: always the same sum
    const std::int64_t head = own.head * p.heads_per_kv + i;
    auto past = all_of<kPerLane>(1.0F);         // decays of the key channels
    auto past_values = all_of<kPerLane>(1.0F);  // and of the value channels
    auto dk_of_others = all_of<kPerLane>(0.0F);
    auto dv_of_others = dk_of_others;
    const auto add = [&](std::int64_t token, const Channels<kPerLane>& decayed_k,
                         const Channels<kPerLane>& decayed_v, Channels<kPerLane>& to_k,
                         Channels<kPerLane>& to_v) {
      const auto q = load_row<T, kPerLane>(p.q, batch, token, head, p.keys);
      const auto d_o = load_row<T, kPerLane>(p.d_o, batch, token, head, p.values);
      const float score = p.scale * dot(q, decayed_k);
      const float dp = p.scale * dot(d_o, decayed_v);
#pragma unroll
      for (int c = 0; c < kPerLane; ++c) {
        to_k[c] = fmaf(dp * past[c], q[c], to_k[c]);
        to_v[c] = fmaf(score * past_values[c], d_o[c], to_v[c]);
      }
    };
    add(own.token, k, v, dk, dv);
    for (std::int64_t step = first + 1; step < own.span.length; ++step) {
      const std::int64_t token = own.token_of(p, step);
      const float shared = shared_log<T>(p, own.sequence, batch, token, head);
      multiply(past, decays_of<T, kPerLane>(p.key_gate, shared, batch, token, head, p.keys));
      if (p.value_gate.given()) {
        multiply(past_values,
                 decays_of<T, kPerLane>(p.value_gate, 0.0F, batch, token, head, p.values));
      }
      auto decayed_k = k;
      auto decayed_v = v;
      multiply(decayed_k, past);
      multiply(decayed_v, past_values);
      add(token, decayed_k, decayed_v, dk_of_others, dv_of_others);
    }
#pragma unroll
    for (int c = 0; c < kPerLane; ++c) {
      dk[c] += dk_of_others[c];
      dv[c] += dv_of_others[c];
      dk_of_others[c] *= k[c];
      dv_of_others[c] *= v[c];
    }
    store_terms(p.key_terms.lost, p, batch, own.token, head, p.keys, dk_of_others);
    store_terms(p.value_terms.lost, p, batch, own.token, head, p.values, dv_of_others);
  }
  store_row<T>(p.dk, batch, own.token, own.head, p.keys, dk);
  store_row<T>(p.dv, batch, own.token, own.head, p.values, dv);
}

/// Whether there is nothing before a token for its decay to act on.
__device__ __forceinline__ bool has_no_past(std::int64_t step, float log) {
  return step == 0 || log == -CUDART_INF_F;
}

/// Calls visit(step, token, term) from a sequence's last step to its first, with what term(token)
/// gave: of several tokens before the first of them is visited, so that their loads are under way
/// together.
template <class Term, class Visit>
__device__ __forceinline__ void for_steps_back(const BackwardParams& p, const SequenceSpan& span,
                                               Term&& term, Visit&& visit) {
  constexpr int kTogether = 4;
  const auto token_at = [&](std::int64_t step) {
    return span.begin + (p.descending ? span.length - 1 - step : step);
  };
  for (std::int64_t last = span.length - 1; last >= 0; last -= kTogether) {
    decltype(term(std::int64_t{0})) terms[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) terms[i] = term(token_at(max(last - i, std::int64_t{0})));
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (i <= last) visit(last - i, token_at(last - i), terms[i]);
    }
  }
}

/// What a token's gate gains and loses, and the log of its decay.
struct GateTerm {
  float gained, lost, log;
};

/// The gradient of a gate of every channel, from the last token on.
template <class T>
__global__ void channel_gate_gradients(const __grid_constant__ BackwardParams p, GateTerms terms,
                                       GateView gate, TokenView out, int count) {
  const std::int64_t tiles = ceil_div(count, kWarpSize);
  const std::int64_t number = warp_number();
  const std::int64_t head = number / tiles % p.heads;
  const std::int64_t sequence = number / tiles / p.heads;
  if (sequence >= p.sequence_count) return;
  const auto channel = static_cast<int>(number % tiles) * kWarpSize + channel_of(0);
  if (channel >= count) return;
  const SequenceSpan span = span_of(p.sequences, sequence);
  const auto term = [&](std::int64_t token) -> GateTerm {
    const std::int64_t at =
        ((span.batch * p.sequences.tokens + token) * p.heads + head) * count + channel;
    const float log = gate_at<T>(gate, row_offset(gate.rows, span.batch, token, head) + channel);
    return {terms.gained[at], terms.lost[at],
            shared_log<T>(p, sequence, span.batch, token, head) + log};
  };
  double sum = 0.0;
  for_steps_back(p, span, term, [&](std::int64_t step, std::int64_t token, const GateTerm& of) {
    sum += static_cast<double>(of.gained) - static_cast<double>(of.lost);
    if (has_no_past(step, of.log)) sum = 0.0;
    static_cast<float*>(out.data)[row_offset(out, span.batch, token, head) + channel] =
        static_cast<float>(sum);
  });
}

/// Those of g and g_gamma: sums over the key channels.
template <class T>
__global__ void shared_gate_gradients(const __grid_constant__ BackwardParams p) {
  const std::int64_t number = warp_number();
  const std::int64_t head = number % p.heads;
  const std::int64_t sequence = number / p.heads;
  if (sequence >= p.sequence_count) return;
  const SequenceSpan span = span_of(p.sequences, sequence);
  const auto term = [&](std::int64_t token) -> GateTerm {
    const std::int64_t row = (span.batch * p.sequences.tokens + token) * p.heads + head;
    GateTerm of{0, 0, shared_log<T>(p, sequence, span.batch, token, head)};
    for (int channel = channel_of(0); channel < p.keys; channel += kWarpSize) {
      const std::int64_t at = row * p.keys + channel;
      of.gained += p.key_terms.gained[at] - p.key_terms.lost[at];  // what is left of it
    }
    return of;
  };
  double sum = 0.0;
  double total = 0.0;
  for_steps_back(p, span, term, [&](std::int64_t step, std::int64_t token, const GateTerm& of) {
    sum += static_cast<double>(warp_sum(of.gained));
    if (has_no_past(step, of.log)) sum = 0.0;
    total += sum;
    if (p.dg.data != nullptr && channel_of(0) == 0) {
      static_cast<float*>(p.dg.data)[row_offset(p.dg, span.batch, token, head)] =
          static_cast<float>(sum);
    }
  });
  if (p.gamma_terms != nullptr && channel_of(0) == 0) {
    p.gamma_terms[sequence * p.heads + head] = static_cast<float>(total);
  }
}

template <class T>
void launch_backward(const BackwardParams& p, int warps, cudaStream_t stream) {
  const auto shape = [&](std::int64_t count) -> LaunchShape {
    return {.grid = grid_of(ceil_div(count, warps)),
            .block = static_cast<unsigned>(warps * kWarpSize)};
  };
  with_channels(p.keys > p.values ? p.keys : p.values, [&]<int kPerLane>() {
    launch<query_gradients<T, kPerLane>>(shape(p.rows() * p.heads), stream, p);
    launch<key_value_gradients<T, kPerLane>>(shape(p.rows() * (p.heads / p.heads_per_kv)), stream,
                                             p);
  });
  const auto channel_gate = [&](const GateTerms& terms, const GateView& gate, const TokenView& out,
                                int count) {
    if (out.data == nullptr) return;
    const std::int64_t tiles = ceil_div(count, kWarpSize);
    launch<channel_gate_gradients<T>>(shape(p.sequence_count * p.heads * tiles), stream, p, terms,
                                      gate, out, count);
  };
  channel_gate(p.key_terms, p.key_gate, p.dgk, p.keys);
  channel_gate(p.value_terms, p.value_gate, p.dgv, p.values);
  if (p.dg.data != nullptr || p.gamma_terms != nullptr) {
    launch<shared_gate_gradients<T>>(shape(p.sequence_count * p.heads), stream, p);
  }
}

}  // namespace attune::cuda::parallel
