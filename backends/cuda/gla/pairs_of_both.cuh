// The kernels of pairs where both sides have gates. Scores of one side are made with its decays and
// used by the other:
//
//   the values' channels make P; the keys' take P, and make A; the values' take A.
//
// Between the kernels that do so scores are in the workspace. Strong chunks, of either side, go
// through exact ones in the same order.
#pragma once

#include "cuda/gla/pairs_launch.cuh"

namespace attune::cuda::gla_backward {

inline constexpr int kScoreBytes = kPanelBytes;
inline constexpr int kScoreWords = kScoreBytes / static_cast<int>(sizeof(uint4));

__device__ __forceinline__ uint4* scores_of(const GlaBackwardParams& p, const ChunkPlace& chunk) {
  return static_cast<uint4*>(p.scores) + chunk.index * kScoreWords;
}

#if ATTUNE_SM90A_CODE

/// P is under way, but for a wait.
template <class Block>
__device__ __forceinline__ void start_scores(const GlaBackwardParams& p, Block& block,
                                             const ChunkPlace& chunk) {
  const uint4* const from = scores_of(p, chunk);
  const std::uint32_t to = shared_address(&block.p());
  for (int i = static_cast<int>(threadIdx.x); i < kScoreWords; i += Block::kThreads) {
    copy_async_16(to + static_cast<std::uint32_t>(i) * 16U, from + i, true);
  }
  block.load_near_scores();
}
/// A, as the other side takes it.
template <class Block>
__device__ __forceinline__ void store_scores(const GlaBackwardParams& p, Block& block,
                                             const ChunkPlace& chunk) {
  const auto* const from = reinterpret_cast<const uint4*>(block.make_a().bytes[0]);
  block.store_near_scores();
  __syncthreads();  // all scores are there
  uint4* const to = scores_of(p, chunk);
  for (int i = static_cast<int>(threadIdx.x); i < kScoreWords; i += Block::kThreads)
    to[i] = from[i];
}

template <class Block>
__device__ __forceinline__ void make_scores(const GlaBackwardParams& p,
                                            typename Block::Shared& shared, TileLoads& loads) {
  Block block(p, shared, loads);
  block.template begin<false>();
  for_all_channels<Block>(p, [&](int first) { block.take_scores(first); });
  store_scores(p, block, shared.chunk);
}

template <class Block>
__device__ __forceinline__ void take_chunk_of_both(const GlaBackwardParams& p,
                                                   typename Block::Shared& shared,
                                                   TileLoads& loads) {
  Block block(p, shared, loads);
  start_scores(p, block, shared.chunk);
  block.begin();
  take_all_channels(p, block);
  if (p.makes_scores) store_scores(p, block, shared.chunk);
}

#endif

template <class T, int kD>
__global__ __launch_bounds__(PairsShared<kD>::kThreads, PairsShared<kD>::kBlocks) void scores(
    const __grid_constant__ GlaBackwardParams p) {
#if ATTUNE_SM90A_CODE
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<PairsShared<kD>*>(shared_bytes);
  take_over_from_previous_launch();
  TileLoads loads(shared.full);
  if_weak(p, shared.chunk, loads, [&] { make_scores<Pairs<T, kD, true>>(p, shared, loads); });
#endif
}

template <class T>
__global__ __launch_bounds__(kBlockThreads,
                             1) void exact_scores(const __grid_constant__ GlaBackwardParams p) {
#if ATTUNE_SM90A_CODE
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<ExactPairsShared*>(shared_bytes);
  take_over_from_previous_launch();
  TileLoads loads(shared.full);
  for_each_strong(p, shared.chunk, loads,
                  [&] { make_scores<ExactPairs<T, true>>(p, shared, loads); });
#endif
}

template <class T, int kD>
__global__ __launch_bounds__(
    PairsShared<kD>::kThreads,
    PairsShared<kD>::kBlocks) void pairs_of_both(const __grid_constant__ GlaBackwardParams p) {
#if ATTUNE_SM90A_CODE
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<PairsShared<kD>*>(shared_bytes);
  take_over_from_previous_launch();
  TileLoads loads(shared.full);
  if_weak(p, shared.chunk, loads,
          [&] { take_chunk_of_both<Pairs<T, kD, true>>(p, shared, loads); });
#endif
}

template <class T>
__global__ __launch_bounds__(kBlockThreads, 1) void exact_pairs_of_both(
    const __grid_constant__ GlaBackwardParams p) {
#if ATTUNE_SM90A_CODE
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<ExactPairsShared*>(shared_bytes);
  take_over_from_previous_launch();
  TileLoads loads(shared.full);
  for_each_strong(p, shared.chunk, loads,
                  [&] { take_chunk_of_both<ExactPairs<T, true>>(p, shared, loads); });
#endif
}

template <class T, int kD>
void launch_pairs_of_both(const GlaBackwardParams& keys, const GlaBackwardParams& values,
                          cudaStream_t stream) {
  using Shared = PairsShared<kD>;
  launch_weak<scores<T, kD>>(values, Shared::kThreads, sizeof(Shared), stream);
  launch_strong<exact_scores<T>>(values, sizeof(ExactPairsShared), stream);
  for (const GlaBackwardParams* const side : {&keys, &values}) {
    launch_weak<pairs_of_both<T, kD>>(*side, Shared::kThreads, sizeof(Shared), stream);
    launch_strong<exact_pairs_of_both<T>>(*side, sizeof(ExactPairsShared), stream);
  }
}

}  // namespace attune::cuda::gla_backward
