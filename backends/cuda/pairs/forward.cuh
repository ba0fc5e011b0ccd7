// The outputs, a warp a token of a query head.
#pragma once

#include "cuda/pairs/pairs.cuh"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda::pairs {

/// Of a thread. With 168 a multiprocessor has twelve warps; rows of fp32 would have to be spilled.
template <class T>
inline constexpr int kMostRegisters = sizeof(T) < sizeof(float) ? 168 : 255;

template <class T, int kPerLane>
__global__ void __maxnreg__(kMostRegisters<T>) outputs(const __grid_constant__ ForwardParams p) {
  take_over_from_previous_launch();
  const std::int64_t number = warp_number();
  if (number >= p.rows() * p.heads) return;
  const OwnToken own(p, p.heads, number);
  if (p.most_tokens > 0 && !own.is_in_a_sequence) return;  // a row of zeros, or another launch's
  const std::int64_t batch = own.span.batch;
  auto o = all_of<kPerLane>(0.0F);
  if (own.is_in_a_sequence) {
    const std::int64_t shared_head = quotient(own.head, p.heads_per_kv);
    const int back = p.descending ? 1 : -1;
    const auto rows_of = [&](const ConstTokenView& view, std::int64_t head, int count) {
      return WalkedRows<T, kPerLane>(view, batch, own.token, head, count, back);
    };
    const auto gate_of = [&](const GateView& gate, int count) {
      return WalkedGate<T, kPerLane>(gate, batch, own.token, own.head, channel_of(0), count, back);
    };
    auto q_row = rows_of(p.q, own.head, p.keys);
    auto k = rows_of(p.k, shared_head, p.keys);
    auto v = rows_of(p.v, shared_head, p.values);
    auto key_gate = gate_of(p.key_gate, p.keys);
    auto value_gate = gate_of(p.value_gate, p.values);
    WalkedGate<T, 1> shared_gate(p.shared_gate, batch, own.token, own.head, 0, 1, back);
    const auto first = static_cast<int>(own.step(p));
    float gamma = 0.0F;
    q_row.ask_for_next();
    k.ask_for_next();
    v.ask_for_next();
    if (first > 0) {
      key_gate.ask_for_next();
      shared_gate.ask_for_next();
      value_gate.ask_for_next();
      gamma = constant_decay(p.gamma, own.sequence, own.head);
    }
    auto q = q_row.channels();
    float past_of_keys = 1.0F;           // decay that all key channels have where none has its own
    auto past = all_of<kPerLane>(1.0F);  // decays of the value channels
    for (int step = first;; --step) {
      const float part = part_of_dot(q, k);
      const float weight = p.scale * past_of_keys;
      // Rows of the token before are asked for as soon as this one's have left their registers; by
      // the first token of a sequence not at all.
      if (first > 0) {
        k.ask_for_next(step > 0);
        if (step > 0) {
          const float shared = gamma + shared_gate.first_log();
          if (key_gate.given()) {
            key_gate.decay(q, shared);
          } else {
            past_of_keys *= exp2_approx(shared * kLog2E);
          }
        }
        key_gate.ask_for_next(step > 1);
        shared_gate.ask_for_next(step > 1);
      }
      const float score = weight * warp_sum(part);
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) o[i] = fmaf(score * past[i], v[i], o[i]);
      if (first == 0) break;
      v.ask_for_next(step > 0);
      if (step == 0) break;
      if (value_gate.given()) value_gate.decay(past, 0.0F);
      value_gate.ask_for_next(step > 1);
    }
  }
  store_row<T>(p.o, batch, own.token, own.head, p.values, o);
}

template <class T>
void launch_forward(const ForwardParams& p, int warps, cudaStream_t stream) {
  with_channels(p.keys > p.values ? p.keys : p.values, [&]<int kPerLane>() {
    launch<outputs<T, kPerLane>>({.grid = grid_of(ceil_div(p.rows() * p.heads, warps)),
                                  .block = static_cast<unsigned>(warps * kWarpSize),
                                  .overlaps_previous = true},
                                 stream, p);
  });
}

}  // namespace attune::cuda::pairs
