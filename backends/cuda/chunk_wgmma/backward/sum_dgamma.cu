// The gradient of a constant decay from the sums of dg that each walk left, in a fixed order.
#include "cuda/chunk_wgmma/backward/launch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda::chunk_backward {
namespace {

constexpr int kThreads = 128;

/// A thread per head and, unless sequences share their gradient, per sequence.
__global__ __launch_bounds__(kThreads) void sum_dgamma(const ChunkBackwardParams p,
                                                       std::int64_t sequences, bool shared) {
  take_over_from_previous_launch();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t outputs = shared ? p.heads : sequences * p.heads;
  if (i >= outputs) return;
  const std::int64_t head = i % p.heads;
  const std::int64_t first = i / p.heads;
  const std::int64_t end = shared ? sequences : first + 1;
  float sum = 0.0F;
  for (std::int64_t n = first; n < end; ++n) {
    const int count = p.parts() * p.segments;
    const float* const parts = p.dgamma_parts + (n * p.heads + head) * count;
    for (int i = 0; i < count; ++i) sum += parts[i];
  }
  p.dgamma.data[first * p.dgamma.sequence + head * p.dgamma.head] = p.dgamma_sign * sum;
}

}  // namespace

void launch_sum_dgamma(const ChunkBackwardParams& params, std::int64_t sequences,
                       cudaStream_t stream) {
  const bool shared = params.dgamma.sequence == 0;
  const std::int64_t outputs = shared ? params.heads : sequences * params.heads;
  const std::int64_t blocks = (outputs + kThreads - 1) / kThreads;
  launch<sum_dgamma>({.grid = dim3(static_cast<unsigned>(blocks)),
                      .block = dim3(kThreads),
                      .overlaps_previous = true},
                     stream, params, sequences, shared);
}

}  // namespace attune::cuda::chunk_backward
