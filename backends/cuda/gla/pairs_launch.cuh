// Which kernel of pairs takes a chunk, and what all of them do.
#pragma once

#include <algorithm>

#include "cuda/gla/exact_pairs.cuh"
#include "cuda/gla/launch.hpp"
#include "cuda/gla/pairs.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::gla_backward {

/// Whether the decays of a chunk, of either side, are for the exact kernel.
__device__ __forceinline__ bool is_strong(const GlaBackwardParams& p, unsigned chunk) {
  const auto any = [chunk](const unsigned* strong, int panels) {
    bool found = false;
    for (int panel = 0; panel < panels; ++panel) {
      found = found || strong[static_cast<std::int64_t>(chunk) * panels + panel] != 0;
    }
    return found;
  };
  return any(p.strong, own_panels(p)) ||
         (p.other_strong != nullptr && any(p.other_strong, other_channels(p) / kPanelChannels));
}

/// f(first) of all the gated side's channels, as many at a time as a block takes.
template <class Block, class F>
__device__ __forceinline__ void for_all_channels(const GlaBackwardParams& p, F&& f) {
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
__device__ __forceinline__ void take_all_channels(const GlaBackwardParams& p, Block& block) {
  for_all_channels<Block>(p, [&](int first) { block.take_channels(first); });
  block.put_shared_gradients();
}

/// A block's chunk, unless it is strong: f(). Sets the place and the loads up.
template <class F>
__device__ __forceinline__ void if_weak(const GlaBackwardParams& p, ChunkPlace& place,
                                        const TileLoads& loads, F&& f) {
  const unsigned chunk = chunk_of_block(p, blockIdx.x);
  if (threadIdx.x == 0) {
    place = chunk_place(p, chunk);
    loads.init();
  }
  const bool strong = is_strong(p, chunk);
  __syncthreads();  // the chunk's place is there
  if (place.rows == 0) {
    if (p.dgamma_parts != nullptr && threadIdx.x == 0) p.dgamma_parts[chunk] = 0.0F;
    return;
  }
  if (!strong) f();
}

/// Strong chunks: each block looks for them among its share. f() for each, whose place is set. Sets
/// the loads up.
template <class F>
__device__ __forceinline__ void for_each_strong(const GlaBackwardParams& p, ChunkPlace& place,
                                                const TileLoads& loads, F&& f) {
  if (threadIdx.x == 0) loads.init();
  const auto chunks = static_cast<unsigned>(p.slots * p.heads);
  const unsigned lane = threadIdx.x % kWarpSize;
  for (unsigned first = blockIdx.x; first < chunks; first += gridDim.x * kWarpSize) {
    const unsigned mine = first + lane * gridDim.x;
    unsigned strong = __ballot_sync(kFullWarp, mine < chunks && is_strong(p, mine));
    for (; strong != 0; strong &= strong - 1) {
      const unsigned chunk = first + static_cast<unsigned>(__ffs(strong) - 1) * gridDim.x;
      if (threadIdx.x == 0) place = chunk_place(p, chunk);
      __syncthreads();  // the chunk's place is there
      if (place.rows > 0) f();
      __syncthreads();  // nothing of it is needed any more
    }
  }
}

/// A block for each chunk and head.
template <auto kKernel>
void launch_weak(const GlaBackwardParams& p, int threads, std::size_t shared_bytes,
                 cudaStream_t stream) {
  launch<kKernel>({.grid = dim3(static_cast<unsigned>(p.slots * p.heads)),
                   .block = dim3(static_cast<unsigned>(threads)),
                   .shared_bytes = shared_bytes,
                   .overlaps_previous = true},
                  stream, p);
}
template <auto kKernel>
void launch_strong(const GlaBackwardParams& p, std::size_t shared_bytes, cudaStream_t stream) {
  constexpr std::int64_t kBlocks = 512;
  launch<kKernel>({.grid = dim3(static_cast<unsigned>(std::min(p.slots * p.heads, kBlocks))),
                   .block = dim3(kBlockThreads),
                   .shared_bytes = shared_bytes,
                   .overlaps_previous = true},
                  stream, p);
}

}  // namespace attune::cuda::gla_backward
