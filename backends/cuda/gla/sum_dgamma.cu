// The gradient of a constant decay from the sums of dg over chunks, in a fixed order.
#include "cuda/gla/launch.hpp"
#include "cuda/gla/place.cuh"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/exchange.cuh"

namespace attune::cuda::gla_backward {
namespace {

/// A warp per head and, unless sequences share their gradient, per sequence.
__global__ __launch_bounds__(kWarpSize) void sum_dgamma(
    const __grid_constant__ GlaBackwardParams p) {
  take_over_from_previous_launch();
  const std::int64_t head = blockIdx.x % p.heads;
  const std::int64_t sequence = blockIdx.x / p.heads;
  std::int64_t first = 0;
  std::int64_t end = p.slots;
  if (p.dgamma.sequence != 0) {
    const SequenceSpan span = span_of(p.sequences, sequence);
    first = first_slot(p.sequences, sequence, span);
    end = first + (span.length + kChunkTokens - 1) / kChunkTokens;
  }
  float sum = 0.0F;
  for (std::int64_t slot = first + threadIdx.x; slot < end; slot += kWarpSize) {
    sum += p.dgamma_parts[head * p.slots + slot];
  }
  sum = warp_sum(sum);
  if (threadIdx.x == 0) {
    p.dgamma.data[sequence * p.dgamma.sequence + head * p.dgamma.head] = p.dgamma_sign * sum;
  }
}

}  // namespace

void launch_sum_dgamma(const GlaBackwardParams& p, cudaStream_t stream) {
  const std::int64_t rows = p.dgamma.sequence == 0 ? 1 : p.sequence_count;
  launch<sum_dgamma>({.grid = dim3(static_cast<unsigned>(rows * p.heads)),
                      .block = dim3(kWarpSize),
                      .overlaps_previous = true},
                     stream, p);
}

}  // namespace attune::cuda::gla_backward
