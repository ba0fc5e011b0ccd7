// The kernels of what stays within a chunk: which one takes a chunk, and their launches.
#pragma once

#include <algorithm>
#include <bit>

#include "cuda/gla/exact_intra_chunk.cuh"
#include "cuda/gla/intra_chunk.cuh"
#include "cuda/gla/ungated_side.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/runtime/multiprocessors.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda::gla {

/// Whether the decays of a chunk, of either side, are for the exact kernel.
__device__ __forceinline__ bool is_strong(const GlaParams& p, unsigned chunk) {
  const auto any = [chunk](const unsigned* strong, int panels) {
    bool found = false;
    for (int panel = 0; panel < panels; ++panel) {
      found = found || strong[static_cast<std::int64_t>(chunk) * panels + panel] != 0;
    }
    return found;
  };
  return any(p.strong, p.own_panels()) ||
         (p.other_strong != nullptr && any(p.other_strong, p.other_panels()));
}

/// f(first) of all the gated side's channels, as many at a time as a block takes.
template <class Block, class F>
__device__ __forceinline__ void for_all_channels(const GlaParams& p, F&& f) {
  if constexpr (Block::kStep == Block::kMost) {
    f(0);
  } else {
#pragma unroll 1
    for (int first = 0; first < p.own; first += Block::kStep) {
      asm volatile("" : "+r"(first)::"memory");
      f(first);
    }
  }
}

/// All channels of the gated side, and the gradients of what they share.
template <class Block>
__device__ __forceinline__ void take_all_channels(const GlaParams& p, Block& block) {
  for_all_channels<Block>(p, [&](int first) { block.take_channels(first); });
  block.put_shared_gradients();
}

/// A block's chunk, unless it is strong: f(). Sets the chunk and the loads up. No block ends before
/// the launch before it has: what comes next relies on that.
template <class F>
__device__ __forceinline__ void if_weak(const GlaParams& p, HeadChunk& chunk,
                                        const TileLoads& loads, F&& f) {
  const unsigned index = chunk_of_block(p, blockIdx.x);
  if (threadIdx.x == 0) {
    chunk = head_chunk(p, index);
    loads.init();
  }
  const bool strong = index != kNoChunk && is_strong(p, index);
  __syncthreads();  // the chunk is known
  if (chunk.rows == 0) {
    const bool is_noted = index != kNoChunk && p.dgamma_terms != nullptr;
    if (is_noted && threadIdx.x == 0) p.dgamma_terms[index] = 0.0F;
  } else if (!strong) {
    f();
  }
  dependency_wait();
}

/// Strong chunks: each block looks for some of them. f() for each. Sets the loads up. Runs beside
/// the launch that takes the others, which needs all that this one does.
template <class F>
__device__ __forceinline__ void for_each_strong(const GlaParams& p, HeadChunk& chunk,
                                                const TileLoads& loads, F&& f) {
  dependents_launch();
  if (threadIdx.x == 0) loads.init();
  const auto chunks = static_cast<unsigned>(p.walked_slots() * p.heads);
  const unsigned lane = threadIdx.x % kWarpSize;
  for (unsigned first = blockIdx.x; first < chunks; first += gridDim.x * kWarpSize) {
    const unsigned mine = first + lane * gridDim.x;
    const unsigned own = mine < chunks ? chunk_of_block(p, mine) : kNoChunk;
    unsigned strong = __ballot_sync(kFullWarp, own != kNoChunk && is_strong(p, own));
    for (; strong != 0; strong &= strong - 1) {
      const unsigned block = first + static_cast<unsigned>(__ffs(strong) - 1) * gridDim.x;
      if (threadIdx.x == 0) chunk = head_chunk(p, chunk_of_block(p, block));
      __syncthreads();  // the chunk is known
      if (chunk.rows > 0) f();
      __syncthreads();  // nothing of it is needed any more
    }
  }
  dependency_wait();  // what comes next waits for this launch alone
}

/// Shared memory of each of `blocks` of which a multiprocessor has room for three; or so much that it has
/// for two, which are sooner done, where a third one saves no round.
inline std::size_t with_room_for_third(std::size_t bytes, std::int64_t blocks) {
  constexpr std::size_t kRoomForTwo = std::size_t{80} * 1024;
  const std::int64_t of_device = multiprocessor_count();
  const std::int64_t rounds = ceil_div(blocks, 2 * of_device);
  const bool saves_round = rounds > ceil_div(blocks, 3 * of_device);
  return rounds == 1 || saves_round ? bytes : std::max(bytes, kRoomForTwo);
}

/// A block for each chunk and head, or one for each part of it. They read what goes ahead of the walks
/// before they wait for them.
template <auto kKernel, class Shared>
void launch_weak(const GlaParams& p, std::size_t shared_bytes, cudaStream_t stream, int parts = 1) {
  const std::int64_t chunks = p.walked_slots() * p.heads;
  if constexpr (Shared::kBlocks == 3) {
    shared_bytes = with_room_for_third(shared_bytes, chunks * parts);
  }
  launch<kKernel>({.grid = dim3(static_cast<unsigned>(chunks), static_cast<unsigned>(parts)),
                   .block = dim3(Shared::kThreads),
                   .shared_bytes = shared_bytes,
                   .overlaps_previous = p.walked() > 0},
                  stream, p);
}
template <auto kKernel, class... Others>
void launch_strong(const GlaParams& p, std::size_t shared_bytes, cudaStream_t stream,
                   const Others&... others) {
  constexpr std::int64_t kBlocks = 512;
  launch<kKernel>(
      {.grid = dim3(static_cast<unsigned>(std::min(p.walked_slots() * p.heads, kBlocks))),
       .block = dim3(kBlockThreads),
       .shared_bytes = shared_bytes,
       .overlaps_previous = true},
      stream, p, others...);
}

/// Calls f.operator()<kD>() for the channels of the side with the most, or more.
template <class F>
void with_most_channels(const GlaParams& p, F&& f) {
  const auto tiles = static_cast<unsigned>(std::max(p.own_tiles, p.other_tiles));
  with_value<kSmallTile, kLargeTile, 2 * kLargeTile, kMostChannels>(
      p.tile_channels * static_cast<int>(std::bit_ceil(tiles)), f);
}

// ---- one side has gates: what the other one makes is made here too

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
    if (block.joins_parts()) block.put_shared_gradients();
    return;
  }
  Block block(p, shared.gated, loads);
  if constexpr (!other.kLoadsParts) other.start_loads();
  if constexpr (!Block::kBeginsAll) block.template begin<false>();
  for_all_channels<Block>(p, [&](int from) { block.take_scores(from); });
  dependency_wait();
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

/// Of the gated side, in blocks that share a chunk.
template <class Shared>
int parts_of(const GlaParams& p) {
  return (p.own + Shared::kPart - 1) / Shared::kPart;
}
/// Whether chunks are few enough for several blocks to share the work of one.
template <class Shared>
bool may_share_chunks(const GlaParams& p) {
  constexpr std::int64_t kMostWarpgroups = 2;  // of a multiprocessor
  const std::int64_t warpgroups =
      p.slots * p.heads * (parts_of<Shared>(p) + 1) * Shared::kWarpgroups;
  return warpgroups <= kMostWarpgroups * multiprocessor_count();
}

template <class T>
void launch_intra_chunk(const GlaParams& p, cudaStream_t stream) {
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

// ---- both sides have gates. Scores of one side are made with its decays and used by the other:
//
//   the values' channels make P; the keys' take P, and make A; the values' take A.
//
// Between the kernels that do so scores are in the workspace. Strong chunks, of either side, go
// through an exact one in the same order.

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
  if (block.joins_parts()) block.put_shared_gradients();
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
