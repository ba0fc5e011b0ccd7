// Which kernel of what stays within a chunk takes a chunk, by its decays, and how such kernels are launched.
#pragma once

#include <algorithm>
#include <bit>

#include "cuda/gla/exact_intra_chunk.cuh"
#include "cuda/gla/intra_chunk.cuh"
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

/// A block's chunk, unless it is strong: f(). Sets the chunk and the loads up. The launch does not end
/// before the one before it has: what comes next relies on that.
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
  if (p.flow_arrivals == nullptr || blockIdx.x + 1 == gridDim.x) dependency_wait();
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
/// As many blocks as there is room for at once: where no chunk is strong, each has only to find that out.
template <auto kKernel, class... Others>
void launch_strong(const GlaParams& p, std::size_t shared_bytes, cudaStream_t stream,
                   const Others&... others) {
  const std::int64_t chunks = p.walked_slots() * p.heads;
  const std::int64_t blocks = multiprocessor_count();
  launch<kKernel>({.grid = dim3(static_cast<unsigned>(std::min(chunks, blocks))),
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

}  // namespace attune::cuda::gla
