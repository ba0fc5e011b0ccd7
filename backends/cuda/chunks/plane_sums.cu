#include <algorithm>

#include "cuda/chunks/plane_sums.hpp"
#include "cuda/chunks/views.cuh"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda {
inline namespace plane_sums_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 16;  // each then takes several elements a thread

/// A thread an element of out.
template <class T>
__global__ __launch_bounds__(kThreads) void plane_sums(const __grid_constant__ PlaneSumParams p) {
  take_over_from_previous_launch();
  const std::int64_t out_heads = p.heads / p.group;
  const std::int64_t plane = p.batches * p.tokens * p.heads * p.columns;
  const std::int64_t count = p.batches * p.tokens * out_heads * p.columns;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t end = p.sequences.bounds == nullptr ? p.batches * p.tokens
                                                         : bound_of(p.sequences, p.sequence_count);
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += stride) {
    const std::int64_t column = i % p.columns;
    const std::int64_t head = i / p.columns % out_heads;
    const std::int64_t row = i / p.columns / out_heads;  // of [B, T]
    const float* const first = p.planes + (row * p.heads + head * p.group) * p.columns + column;
    float sum = 0.0F;
    for (std::int64_t query_head = 0; row < end && query_head < p.group; ++query_head) {
      for (std::int64_t at = 0; at < p.plane_count; ++at) {
        sum += first[query_head * p.columns + at * plane];
      }
    }
    T* const out = static_cast<T*>(p.out.data) +
                   row_offset(p.out, row / p.tokens, row % p.tokens, head) + column;
    *out = from_float<T>(sum);
  }
}

}  // namespace plane_sums_kernels

template <class T>
void launch_plane_sums(const PlaneSumParams& p, cudaStream_t stream) {
  const std::int64_t count = p.batches * p.tokens * (p.heads / p.group) * p.columns;
  const std::int64_t blocks = std::min(kMostBlocks, (count + kThreads - 1) / kThreads);
  launch<plane_sums<T>>(
      {.grid = static_cast<unsigned>(blocks), .block = kThreads, .overlaps_previous = true}, stream,
      p);
}

template void launch_plane_sums<float>(const PlaneSumParams&, cudaStream_t);
template void launch_plane_sums<__half>(const PlaneSumParams&, cudaStream_t);
template void launch_plane_sums<__nv_bfloat16>(const PlaneSumParams&, cudaStream_t);

}  // namespace attune::cuda
