// Where both sides have gates, only the sum of a key's and a value's counts: the largest gate of a
// token's values moves from them to its keys. A sum of at most 0 is then one of two such numbers.
#pragma once

#include "cuda/gla/launch.hpp"
#include "cuda/gla/place.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::gla_backward {

inline constexpr int kMoveThreads = 256;
inline constexpr int kMoveWarps = kMoveThreads / kWarpSize;

/// A block for each of the tokens, of all batches, a warp for each of its heads in turn.
template <class T>
__global__ __launch_bounds__(kMoveThreads) void move_gates(
    const __grid_constant__ GlaBackwardParams p, float* moved) {
  take_over_from_previous_launch();
  const std::int64_t token = blockIdx.x;
  const ConstTokenView& gates = p.channel_gate.rows;
  const std::int64_t first =
      row_offset(gates, token / p.sequences.tokens, token % p.sequences.tokens, 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int head = static_cast<int>(threadIdx.x) / kWarpSize; head < p.heads; head += kMoveWarps) {
    float most = -INFINITY;
#pragma unroll 4
    for (int i = lane; i < p.own; i += kWarpSize) {
      most = fmaxf(most, gate_at<T>(p.channel_gate, first + head * gates.head + i));
    }
#pragma unroll
    for (int apart = kWarpSize / 2; apart > 0; apart /= 2) {
      most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, apart));
    }
    if (lane == 0) moved[token * p.heads + head] = isfinite(most) ? most : 0.0F;
  }
}

template <class T>
void launch_move_gates(const GlaBackwardParams& values, std::int64_t tokens, float* moved,
                       cudaStream_t stream) {
  launch<move_gates<T>>({.grid = dim3(static_cast<unsigned>(tokens)),
                         .block = dim3(kMoveThreads),
                         .overlaps_previous = true},
                        stream, values, moved);
}

}  // namespace attune::cuda::gla_backward
