// The kernels of what stays within a chunk where one side has gates: what the other one makes is made here,
// too.
#pragma once

#include "cuda/gla/chunk_choice.cuh"
#include "cuda/gla/ungated_side.cuh"

namespace attune::cuda::gla {

template <class Shared, int kUngated>
struct OneSideShared {
  Shared gated;
  UngatedTiles<kUngated> own_tiles;
  __device__ UngatedTiles<kUngated>& tiles() { return own_tiles; }
};
/// Where not all of the other side's channels are there at once, they are where flows are not yet,
/// and no more: behind what is staged.
template <int kD, int kGroups, int kUngated>
requires(kUngated < kD) struct OneSideShared<IntraChunkShared<kD, kGroups>, kUngated> {
  IntraChunkShared<kD, kGroups> gated;
  __device__ UngatedTiles<kUngated>& tiles() {
    static_assert(sizeof(UngatedTiles<kUngated>) <= sizeof(gated.flows));
    unsigned char* const end = reinterpret_cast<unsigned char*>(&gated.flows) + sizeof(gated.flows);
    return reinterpret_cast<UngatedTiles<kUngated>&>(*(end - sizeof(UngatedTiles<kUngated>)));
  }
};
/// Of one that takes strong chunks.
template <int kD>
using StrongShared = OneSideShared<ExactIntraChunkShared, std::min(kD, 2 * kLargeTile)>;

#if ATTUNE_SM90A_CODE

/// P of the other side, and the block's first rows.
template <class Block, class Other>
__device__ __forceinline__ void begin_with_p(Block& block, const Other& other) {
  other.start_loads();
  if constexpr (Other::kLoadsParts) {
    other.finish_loads();
    block.make_p(other);
    if constexpr (!Block::kBeginsAll) {
      async_proxy_fence();
      __syncthreads();  // the other side's tiles are free
      block.template begin<false>();
    }
  } else {
    block.template begin<false>();
    block.make_p(other);
  }
  block.begin_flows();
}

template <class Block, class T, int kD, int kUngated>
__device__ __forceinline__ void take_chunk(const GlaParams& p,
                                           OneSideShared<typename Block::Shared, kUngated>& shared,
                                           TileLoads& loads) {
  Block block(p, shared.gated, loads);
  const UngatedSide<T, kD, Block::kThreads, kUngated> other(p, shared.tiles(), shared.gated.chunk);
  begin_with_p(block, other);
  take_all_channels(p, block);
  other.make_outputs(block.make_a(), block.staged(), loads);
}

/// What a block takes of a chunk that several share: the outputs of a part of the gated side's
/// channels, with P; or those of the other side, with A.
template <class Block, class T, int kUngated>
__device__ __forceinline__ void take_part(const GlaParams& p,
                                          OneSideShared<typename Block::Shared, kUngated>& shared,
                                          TileLoads& loads) {
  using OnePart = IntraChunk<T, typename Block::Shared, false, true>;
  const int first = OnePart::first_of_block();
  const UngatedSide<T, Block::kMost, Block::kThreads, kUngated> other(p, shared.tiles(),
                                                                      shared.gated.chunk);
  if (first < p.own) {
    OnePart block(p, shared.gated, loads);
    begin_with_p(block, other);
    block.take_channels(first);
    block.put_shared_gradients_of_parts();
    return;
  }
  Block block(p, shared.gated, loads);
  if constexpr (!other.kLoadsParts) other.start_loads();
  if constexpr (!Block::kBeginsAll) block.template begin<false>();
  for_all_channels<Block>(p, [&](int from) { block.take_scores(from); });
  wait_for_flows(p, shared.gated.chunk);
  dependents_launch();
  other.make_outputs(block.make_a(), block.staged(), loads);
}

#endif

template <class T, class Shared>
__global__ __launch_bounds__(Shared::kThreads, Shared::kBlocks) void intra_chunk(
    const __grid_constant__ GlaParams p) {
#if ATTUNE_SM90A_CODE
  using Block = IntraChunk<T, Shared, false>;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<OneSideShared<Shared, Shared::kUngated>*>(shared_bytes);
  TileLoads loads(shared.gated.full);
  if_weak(p, shared.gated.chunk, loads,
          [&] { take_chunk<Block, T, Shared::kMost>(p, shared, loads); });
#endif
}

/// Blocks (chunk and head; part of its work).
template <class T, class Shared>
__global__ __launch_bounds__(Shared::kThreads, Shared::kBlocks) void intra_chunk_parts(
    const __grid_constant__ GlaParams p) {
#if ATTUNE_SM90A_CODE
  using Block = IntraChunk<T, Shared, false>;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<OneSideShared<Shared, Shared::kUngated>*>(shared_bytes);
  TileLoads loads(shared.gated.full);
  if_weak(p, shared.gated.chunk, loads, [&] { take_part<Block, T>(p, shared, loads); });
#endif
}

template <class T, int kD>
__global__ __launch_bounds__(kBlockThreads,
                             1) void exact_intra_chunk(const __grid_constant__ GlaParams p) {
#if ATTUNE_SM90A_CODE
  using Block = ExactIntraChunk<T, (kD > 128)>;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<StrongShared<kD>*>(shared_bytes);
  TileLoads loads(shared.gated.full);
  for_each_strong(p, shared.gated.chunk, loads,
                  [&] { take_chunk<Block, T, kD>(p, shared, loads); });
#endif
}

template <class T>
void launch_intra_chunk(const GlaParams& params, cudaStream_t stream) {
  GlaParams p = params;  // blocks take all slots, by a list of them
  if (p.slots_by_arrival != nullptr) p.walked_chunks = {p.slots, p.slots_by_arrival};
  with_most_channels(p, [&]<int kD>() {
    using Part = IntraChunkShared<kD, kPartGroups<kD>>;
    using Chunk = IntraChunkShared<kD, kChunkGroups<kD>>;
    constexpr std::size_t kPartBytes = sizeof(OneSideShared<Part, Part::kUngated>);
    if (may_share_chunks<Part>(p)) {
      launch_weak<intra_chunk_parts<T, Part>, Part>(p, kPartBytes, stream, parts_of<Part>(p) + 1);
    } else if (p.slots * p.heads <= multiprocessor_count()) {
      launch_weak<intra_chunk<T, Part>, Part>(p, kPartBytes, stream);
    } else {
      launch_weak<intra_chunk<T, Chunk>, Chunk>(p, sizeof(OneSideShared<Chunk, Chunk::kUngated>),
                                                stream);
    }
    launch_strong<exact_intra_chunk<T, kD>>(p, sizeof(StrongShared<kD>), stream);
  });
}

}  // namespace attune::cuda::gla
