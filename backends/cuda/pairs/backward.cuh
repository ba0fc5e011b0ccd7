// The gradients: of queries a warp a token of a query head, of keys and values a warp a token of
// one of theirs, in one launch, and of gates a warp a sequence and 32 channels, in one behind it. What
// a sequence's first token has of the latter is 0, as there is nothing before it: of single tokens
// the first launch makes all.
#pragma once

#include "cuda/pairs/gate_gradients.cuh"
#include "cuda/pairs/pairs.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda::pairs {

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
