#include <algorithm>

#include "cuda/chunks/group_sums.hpp"
#include "cuda/chunks/views.cuh"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda {
inline namespace group_sums_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 16;  // each then takes several words a thread
constexpr int kColumnsPerWord = 8;
constexpr int kPairsPerWord = kColumnsPerWord / 2;

template <class T>
__device__ __forceinline__ void add_word(float2 (&sums)[kPairsPerWord], const uint4& word) {
  const std::uint32_t pairs[kPairsPerWord] = {word.x, word.y, word.z, word.w};
#pragma unroll
  for (int i = 0; i < kPairsPerWord; ++i) {
    const float2 term = unpack<T>(pairs[i]);
    sums[i].x += term.x;
    sums[i].y += term.y;
  }
}

struct SumsOfLaunch {
  GroupSumParams sums[kMostGroupSums];
};

/// A thread 16 bytes of out; blocks (some of these, sum).
template <class T>
__global__ __launch_bounds__(kThreads) void group_sums(const __grid_constant__ SumsOfLaunch all) {
  take_over_from_previous_launch();
  const GroupSumParams& p = all.sums[blockIdx.y];
  const std::int64_t words = p.columns / kColumnsPerWord;  // of a row
  const std::int64_t count = p.rows * p.heads * words;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += stride) {
    const std::int64_t word = i % words;
    const std::int64_t owner = i / words;  // row and head of out
    const auto* const first =
        static_cast<const uint4*>(p.partials) + owner * p.group * words + word;
    float2 sums[kPairsPerWord] = {};
#pragma unroll 4
    for (std::int64_t head = 0; head < p.group; ++head) add_word<T>(sums, first[head * words]);
    const std::int64_t row = owner / p.heads;
    T* const out = static_cast<T*>(p.out.data) +
                   row_offset(p.out, row / p.tokens, row % p.tokens, owner % p.heads) +
                   word * kColumnsPerWord;
    *reinterpret_cast<uint4*>(out) = {pack<T>(sums[0].x, sums[0].y), pack<T>(sums[1].x, sums[1].y),
                                      pack<T>(sums[2].x, sums[2].y), pack<T>(sums[3].x, sums[3].y)};
  }
}

}  // namespace group_sums_kernels

template <class T>
void launch_group_sums(std::span<const GroupSumParams> sums, cudaStream_t stream) {
  SumsOfLaunch all;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const GroupSumParams& p = all.sums[i] = sums[i];
    most = std::max(most, p.rows * p.heads * (p.columns / kColumnsPerWord));
  }
  const std::int64_t blocks = std::min(kMostBlocks, (most + kThreads - 1) / kThreads);
  launch<group_sums<T>>(
      {.grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(sums.size())),
       .block = kThreads,
       .overlaps_previous = true},
      stream, all);
}

template void launch_group_sums<__half>(std::span<const GroupSumParams>, cudaStream_t);
template void launch_group_sums<__nv_bfloat16>(std::span<const GroupSumParams>, cudaStream_t);

}  // namespace attune::cuda
