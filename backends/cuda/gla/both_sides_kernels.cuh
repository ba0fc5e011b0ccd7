// The kernels of what stays within a chunk where both sides have gates. Scores of one side are made with
// its decays and used by the other:
//
//   the values' channels make P; the keys' take P, and make A; the values' take A.
//
// Between the kernels that do so scores are in the workspace. Strong chunks, of either side, go
// through an exact one in the same order.
#pragma once

#include "cuda/gla/chunk_choice.cuh"

namespace attune::cuda::gla {

inline constexpr int kScoreBytes = kPanelBytes;
inline constexpr int kScoreWords = kScoreBytes / static_cast<int>(sizeof(uint4));

__device__ __forceinline__ uint4* scores_of(void* scores, const HeadChunk& chunk) {
  return static_cast<uint4*>(scores) + chunk.index * kScoreWords;
}

#if ATTUNE_SM90A_CODE

/// P is under way, but for a wait.
template <class Block>
__device__ __forceinline__ void start_scores(const GlaParams& p, Block& block,
                                             const HeadChunk& chunk) {
  const uint4* const from = scores_of(p.scores, chunk);
  const std::uint32_t to = shared_address(&block.p());
  for (int i = static_cast<int>(threadIdx.x); i < kScoreWords; i += Block::kThreads) {
    copy_async_16(to + static_cast<std::uint32_t>(i) * 16U, from + i, true);
  }
  block.load_diagonal_scores();
}
/// A, as the other side takes it.
template <class Block>
__device__ __forceinline__ void store_scores(const GlaParams& p, Block& block,
                                             const HeadChunk& chunk) {
  const auto* const from = reinterpret_cast<const uint4*>(block.make_a().bytes[0]);
  block.store_diagonal_scores();
  __syncthreads();  // all scores are there
  uint4* const to = scores_of(p.made_scores, chunk);
  for (int i = static_cast<int>(threadIdx.x); i < kScoreWords; i += Block::kThreads)
    to[i] = from[i];
}

template <class Block>
__device__ __forceinline__ void make_scores(const GlaParams& p, typename Block::Shared& shared,
                                            TileLoads& loads) {
  Block block(p, shared, loads);
  if constexpr (!Block::kBeginsAll) block.template begin<false>();
  for_all_channels<Block>(p, [&](int first) { block.take_scores(first); });
  store_scores(p, block, shared.chunk);
}

template <class Block>
__device__ __forceinline__ void take_chunk_of_both(const GlaParams& p,
                                                   typename Block::Shared& shared,
                                                   TileLoads& loads) {
  Block block(p, shared, loads);
  start_scores(p, block, shared.chunk);
  if constexpr (!Block::kBeginsAll) block.begin();
  take_all_channels(p, block);
  if (p.makes_scores) store_scores(p, block, shared.chunk);
}

/// What a block takes of a chunk that several share: a part of the channels, or A.
template <class T, class Shared>
__device__ __forceinline__ void take_part_of_both(const GlaParams& p, Shared& shared,
                                                  TileLoads& loads) {
  using OnePart = IntraChunk<T, Shared, true, true>;
  const int first = OnePart::first_of_block();
  if (first >= p.own) {
    if (p.makes_scores) make_scores<IntraChunk<T, Shared, true>>(p, shared, loads);
    return;
  }
  OnePart block(p, shared, loads);
  start_scores(p, block, shared.chunk);
  block.begin();
  block.take_channels(first);
  block.put_shared_gradients_of_parts();
}

#endif

template <class T, class Shared>
__global__ __launch_bounds__(Shared::kThreads,
                             Shared::kBlocks) void scores(const __grid_constant__ GlaParams p) {
#if ATTUNE_SM90A_CODE
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes);
  dependents_launch();  // the walks and these need nothing of each other
  TileLoads loads(shared.full);
  if_weak(p, shared.chunk, loads,
          [&] { make_scores<IntraChunk<T, Shared, true>>(p, shared, loads); });
#endif
}

template <class T, class Shared>
__global__ __launch_bounds__(Shared::kThreads, Shared::kBlocks) void intra_chunk_of_both(
    const __grid_constant__ GlaParams p) {
#if ATTUNE_SM90A_CODE
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes);
  TileLoads loads(shared.full);
  if_weak(p, shared.chunk, loads, [&] {
    take_over_from_previous_launch();
    take_chunk_of_both<IntraChunk<T, Shared, true>>(p, shared, loads);
  });
#endif
}

/// Blocks (chunk and head; part of its work).
template <class T, class Shared>
__global__ __launch_bounds__(Shared::kThreads, Shared::kBlocks) void intra_chunk_of_both_parts(
    const __grid_constant__ GlaParams p) {
#if ATTUNE_SM90A_CODE
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes);
  TileLoads loads(shared.full);
  if_weak(p, shared.chunk, loads, [&] {
    take_over_from_previous_launch();
    take_part_of_both<T>(p, shared, loads);
  });
#endif
}

/// The same of strong chunks, all by the block that finds one.
template <class T>
__global__ __launch_bounds__(kBlockThreads, 1) void exact_intra_chunk_of_both(
    const __grid_constant__ GlaParams keys, const __grid_constant__ GlaParams values) {
#if ATTUNE_SM90A_CODE
  using Block = ExactIntraChunk<T, true>;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<ExactIntraChunkShared*>(shared_bytes);
  TileLoads loads(shared.full);
  for_each_strong(keys, shared.chunk, loads, [&] {
    make_scores<Block>(values, shared, loads);
    __syncthreads();  // P is there
    take_chunk_of_both<Block>(keys, shared, loads);
    __syncthreads();  // A is there
    take_chunk_of_both<Block>(values, shared, loads);
  });
#endif
}

/// `Parts`: of blocks that share chunks, where those are few.
template <class T, class Shared, class Parts>
void launch_weak_and_strong(const GlaParams& keys, const GlaParams& values, cudaStream_t stream) {
  launch_weak<scores<T, Shared>, Shared>(values, sizeof(Shared), stream);
  for (const GlaParams* const side : {&keys, &values}) {
    if (may_share_chunks<Parts>(*side)) {
      launch_weak<intra_chunk_of_both_parts<T, Parts>, Parts>(*side, sizeof(Parts), stream,
                                                              parts_of<Parts>(*side) + 1);
    } else {
      launch_weak<intra_chunk_of_both<T, Shared>, Shared>(*side, sizeof(Shared), stream);
    }
  }
  launch_strong<exact_intra_chunk_of_both<T>>(keys, sizeof(ExactIntraChunkShared), stream, values);
}

template <class T>
void launch_intra_chunk_of_both(const GlaParams& keys, const GlaParams& values,
                                cudaStream_t stream) {
  with_most_channels(keys, [&]<int kD>() {
    using Part = IntraChunkShared<kD, kPartGroups<kD>>;
    using Chunk = IntraChunkShared<kD, kChunkGroups<kD>>;
    if (keys.slots * keys.heads <= multiprocessor_count()) {
      launch_weak_and_strong<T, Part, Chunk>(keys, values, stream);
    } else {
      launch_weak_and_strong<T, Chunk, Chunk>(keys, values, stream);
    }
  });
}

}  // namespace attune::cuda::gla
