// The kernels of pairs where both sides have gates. Scores of one side are made with its decays and
// used by the other:
//
//   the values' channels make P; the keys' take P, and make A; the values' take A.
//
// Between the kernels that do so scores are in the workspace. Strong chunks, of either side, go
// through exact ones in the same order.
#pragma once

#include "cuda/gla_backward/pairs_launch.cuh"

namespace attune::cuda::gla_backward {

inline constexpr int kScoreBytes = kPanelBytes;
inline constexpr int kScoreWords = kScoreBytes / static_cast<int>(sizeof(uint4));

__device__ __forceinline__ uint4* scores_of(const GlaBackwardParams& p, const ChunkPlace& chunk) {
  return static_cast<uint4*>(p.scores) + chunk.index * kScoreWords;
}

template <class Block>
__device__ __forceinline__ void load_scores(const GlaBackwardParams& p,
                                            typename Block::Shared& shared, Block& block) {
  const uint4* const from = scores_of(p, shared.chunk);
  for (int i = static_cast<int>(threadIdx.x); i < kScoreWords; i += kBlockThreads) {
    copy_async_16(shared_address(&shared.p) + static_cast<std::uint32_t>(i) * 16U, from + i, true);
  }
  copy_async_commit();
  block.load_near_scores();
  copy_async_wait<0>();
}
/// A, as the other side takes it.
template <class Block>
__device__ __forceinline__ void store_scores(const GlaBackwardParams& p,
                                             typename Block::Shared& shared, Block& block) {
  block.template make_a<typename Block::Score>();
  block.store_near_scores();
  __syncthreads();  // all scores are there
  uint4* const to = scores_of(p, shared.chunk);
  const auto* const from = reinterpret_cast<const uint4*>(shared.p.bytes[0]);
  for (int i = static_cast<int>(threadIdx.x); i < kScoreWords; i += kBlockThreads) to[i] = from[i];
}

template <class Block>
__device__ __forceinline__ void make_scores(const GlaBackwardParams& p,
                                            typename Block::Shared& shared) {
  Block block(p, shared);
#pragma unroll 1
  for (int panel = 0; panel * kPanelChannels < p.own; ++panel) block.take_scores(panel);
  store_scores(p, shared, block);
}

template <class Block>
__device__ __forceinline__ void take_chunk_of_both(const GlaBackwardParams& p,
                                                   typename Block::Shared& shared) {
  Block block(p, shared);
  load_scores(p, shared, block);  // a barrier follows before they are used
  take_all_channels(p, block);
  if (p.makes_scores) store_scores(p, shared, block);
}

template <class T>
__global__ __launch_bounds__(kBlockThreads,
                             2) void scores(const __grid_constant__ GlaBackwardParams p) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<PairsShared*>(shared_bytes);
  take_over_from_previous_launch();
  if_weak(p, shared.chunk, [&] { make_scores<Pairs<T, false>>(p, shared); });
}

template <class T>
__global__ __launch_bounds__(kBlockThreads,
                             1) void exact_scores(const __grid_constant__ GlaBackwardParams p) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<ExactPairsShared*>(shared_bytes);
  take_over_from_previous_launch();
  for_each_strong(p, shared.chunk, [&] { make_scores<ExactPairs<T, true>>(p, shared); });
}

template <class T, bool kParted>
__global__ __launch_bounds__(kBlockThreads,
                             2) void pairs_of_both(const __grid_constant__ GlaBackwardParams p) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<PairsShared*>(shared_bytes);
  take_over_from_previous_launch();
  if_weak(p, shared.chunk, [&] { take_chunk_of_both<Pairs<T, kParted>>(p, shared); });
}

template <class T>
__global__ __launch_bounds__(kBlockThreads, 1) void exact_pairs_of_both(
    const __grid_constant__ GlaBackwardParams p) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<ExactPairsShared*>(shared_bytes);
  take_over_from_previous_launch();
  for_each_strong(p, shared.chunk, [&] { take_chunk_of_both<ExactPairs<T, true>>(p, shared); });
}

template <class T>
void launch_pairs_of_both(const GlaBackwardParams& keys, const GlaBackwardParams& values,
                          cudaStream_t stream) {
  launch_weak<scores<T>>(values, sizeof(PairsShared), stream);
  launch_strong<exact_scores<T>>(values, sizeof(ExactPairsShared), stream);
  for (const GlaBackwardParams* const side : {&keys, &values}) {
    side->other_parts == 1
        ? launch_weak<pairs_of_both<T, false>>(*side, sizeof(PairsShared), stream)
        : launch_weak<pairs_of_both<T, true>>(*side, sizeof(PairsShared), stream);
    launch_strong<exact_pairs_of_both<T>>(*side, sizeof(ExactPairsShared), stream);
  }
}

}  // namespace attune::cuda::gla_backward
