// The outputs, a warp a token of a query head.
#pragma once

#include "cuda/parallel/pairs.cuh"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda::parallel {

template <class T, int kPerLane>
__global__ void outputs(const __grid_constant__ ForwardParams p) {
  take_over_from_previous_launch();
  const std::int64_t number = warp_number();
  if (number >= p.rows() * p.heads) return;
  const OwnToken own(p, p.heads, number);
  const std::int64_t batch = own.span.batch;
  const std::int64_t shared_head = own.head / p.heads_per_kv;
  auto o = all_of<kPerLane>(0.0F);
  if (own.is_in_a_sequence) {
    auto q = load_row<T, kPerLane>(p.q, batch, own.token, own.head, p.keys);
    auto past = all_of<kPerLane>(1.0F);  // decays of the value channels
    for (std::int64_t step = own.step(p);; --step) {
      const std::int64_t token = own.token_of(p, step);
      const auto k = load_row<T, kPerLane>(p.k, batch, token, shared_head, p.keys);
      const auto v = load_row<T, kPerLane>(p.v, batch, token, shared_head, p.values);
      // Asked for beside k and v, but by no token that is the first of its sequence.
      const bool has_past = step > 0;
      auto decays = all_of<kPerLane>(1.0F);
      if (has_past) {
        const float shared = shared_log<T>(p, own.sequence, batch, token, own.head);
        decays = decays_of<T, kPerLane>(p.key_gate, shared, batch, token, own.head, p.keys);
      }
      const float score = p.scale * dot(q, k);
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) o[i] = fmaf(score * past[i], v[i], o[i]);
      if (!has_past) break;
      multiply(q, decays);
      if (p.value_gate.given()) {
        multiply(past,
                 decays_of<T, kPerLane>(p.value_gate, 0.0F, batch, token, own.head, p.values));
      }
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

}  // namespace attune::cuda::parallel
