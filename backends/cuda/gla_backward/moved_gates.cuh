// Where both sides have gates, only the sum of a key's and a value's counts: the largest gate of a
// token's values moves from them to its keys. A sum of at most 0 is then one of two such numbers.
#pragma once

#include "cuda/gla_backward/launch.hpp"
#include "cuda/gla_backward/place.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::gla_backward {

inline constexpr int kMoveThreads = 256;
inline constexpr int kMoveWarps = kMoveThreads / kWarpSize;

/// A warp for each row [B, T, heads].
template <class T>
__global__ __launch_bounds__(kMoveThreads) void move_gates(
    const __grid_constant__ GlaBackwardParams p, std::int64_t rows, float* moved) {
  take_over_from_previous_launch();
  const std::int64_t row =
      std::int64_t{blockIdx.x} * kMoveWarps + static_cast<int>(threadIdx.x) / kWarpSize;
  if (row >= rows) return;
  const std::int64_t token = row / p.heads;
  const ConstTokenView& gates = p.channel_gate.rows;
  const std::int64_t first =
      row_offset(gates, token / p.sequences.tokens, token % p.sequences.tokens, row % p.heads);
  float most = -INFINITY;
  for (int i = static_cast<int>(threadIdx.x) % kWarpSize; i < p.own; i += kWarpSize) {
    most = fmaxf(most, gate_at<T>(p.channel_gate, first + i));
  }
#pragma unroll
  for (int apart = kWarpSize / 2; apart > 0; apart /= 2) {
    most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, apart));
  }
  if (threadIdx.x % kWarpSize == 0) moved[row] = isfinite(most) ? most : 0.0F;
}

template <class T>
void launch_move_gates(const GlaBackwardParams& values, std::int64_t rows, float* moved,
                       cudaStream_t stream) {
  launch<move_gates<T>>({.grid = dim3(static_cast<unsigned>((rows + kMoveWarps - 1) / kMoveWarps)),
                         .block = dim3(kMoveThreads),
                         .overlaps_previous = true},
                        stream, values, rows, moved);
}

}  // namespace attune::cuda::gla_backward
