#include <algorithm>

#include "cuda/chunks/plane_sums.cuh"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda {
inline namespace plane_sums_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 16;  // each then takes several elements a thread

template <class T>
__global__ __launch_bounds__(kThreads) void plane_sums(const __grid_constant__ PlaneSumParams p) {
  take_over_from_previous_launch();
  sum_planes<T>(p);
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
