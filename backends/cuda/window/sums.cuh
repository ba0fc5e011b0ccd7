// The sums behind a walk. grid: blocks x which of them.
#pragma once

#include <algorithm>

#include "cuda/chunks/plane_sums.cuh"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/exchange.cuh"
#include "cuda/tiles/tma.cuh"
#include "cuda/window/sums.hpp"

namespace attune::cuda::window {

inline constexpr int kThreadsOfSums = 256;

/// A warp a sum, of a sequence and head or of all sequences.
__device__ __forceinline__ void sum_gamma(const GammaGradient& p, std::int64_t terms) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x / kWarpSize;
  const std::int64_t outputs = (p.shared() ? 1 : p.sequence_count) * p.heads;
  std::int64_t output =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarpSize;
  for (; output < outputs; output += stride) {
    const std::int64_t head = output % p.heads;
    const std::int64_t sequence = output / p.heads;
    const std::int64_t count = (p.shared() ? p.sequence_count : 1) * terms;
    float sum = 0.0F;
    for (std::int64_t i = lane; i < count; i += kWarpSize) {
      sum += p.terms[((sequence + i / terms) * p.heads + head) * terms + i % terms];
    }
    sum = warp_sum(sum);
    if (lane == 0) p.out.data[sequence * p.out.sequence + head * p.out.head] = p.sign * sum;
  }
}

template <class T>
__global__ __launch_bounds__(kThreadsOfSums) void add_up(const __grid_constant__ Sums p) {
  take_over_from_previous_launch();
  if (blockIdx.y == 0 && p.keys.planes != nullptr) sum_planes<T>(p.keys);
  if (blockIdx.y == 1 && p.values.planes != nullptr) sum_planes<T>(p.values);
  if (blockIdx.y == 2 && p.shared.planes != nullptr) sum_planes<float>(p.shared);
  if (blockIdx.y == 3 && p.gamma.out.data != nullptr) sum_gamma(p.gamma, p.gamma_terms);
}

template <class T>
void launch_sums(const Sums& p, cudaStream_t stream) {
  if (!p.any()) return;
  constexpr std::int64_t kMostBlocks = 1 << 16;
  const auto elements = [](const PlaneSumParams& sum) {
    return sum.planes == nullptr ? 0
                                 : sum.batches * sum.tokens * sum.heads / sum.group * sum.columns;
  };
  std::int64_t threads = std::max({elements(p.keys), elements(p.values), elements(p.shared)});
  if (p.gamma.out.data != nullptr) {
    const std::int64_t outputs = (p.gamma.shared() ? 1 : p.gamma.sequence_count) * p.gamma.heads;
    threads = std::max(threads, outputs * kWarpSize);
  }
  const std::int64_t blocks =
      std::min(kMostBlocks, (threads + kThreadsOfSums - 1) / kThreadsOfSums);
  launch<add_up<T>>({.grid = dim3(static_cast<unsigned>(blocks), 4),
                     .block = kThreadsOfSums,
                     .overlaps_previous = true},
                    stream, p);
}

}  // namespace attune::cuda::window
