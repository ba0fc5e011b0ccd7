#include <algorithm>
#include <cstdint>

#include "cuda/chunks/plane_sums.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda {
inline namespace plane_sums_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 16;  // each then takes several elements a thread

template <class T, int kWidth>
__global__ __launch_bounds__(kThreads) void plane_sums(const __grid_constant__ PlaneSumParams p) {
  take_over_from_previous_launch();
  sum_planes<T, kWidth>(p);
}

}  // namespace plane_sums_kernels

namespace {

constexpr int kQuad = 4;

/// Whether each four columns, or what a row has of them, lie where they may be loaded, and stored, at
/// once.
template <class T>
bool moves_quads(const PlaneSumParams& p) {
  const auto is_whole = [](const void* first, std::size_t element) {
    return reinterpret_cast<std::uintptr_t>(first) % (kQuad * element) == 0;
  };
  return p.row % kQuad == 0 && is_whole(p.planes, sizeof(float)) &&
         is_whole(p.out.data, sizeof(T)) && p.out.batch % kQuad == 0 && p.out.token % kQuad == 0 &&
         p.out.head % kQuad == 0;
}

}  // namespace

template <class T>
void launch_plane_sums(const PlaneSumParams& p, cudaStream_t stream) {
  with_value<1, kQuad>(moves_quads<T>(p) ? kQuad : 1, [&]<int kWidth>() {
    const std::int64_t count =
        p.batches * p.tokens * (p.heads / p.group) * ceil_div(p.columns, kWidth);
    const std::int64_t blocks = std::min(kMostBlocks, (count + kThreads - 1) / kThreads);
    launch<plane_sums<T, kWidth>>(
        {.grid = static_cast<unsigned>(blocks), .block = kThreads, .overlaps_previous = true},
        stream, p);
  });
}

template void launch_plane_sums<float>(const PlaneSumParams&, cudaStream_t);
template void launch_plane_sums<__half>(const PlaneSumParams&, cudaStream_t);
template void launch_plane_sums<__nv_bfloat16>(const PlaneSumParams&, cudaStream_t);

}  // namespace attune::cuda
