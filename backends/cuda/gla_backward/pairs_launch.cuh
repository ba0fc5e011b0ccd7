// The launches of the kernels of pairs.
#pragma once

#include <algorithm>

#include "cuda/gla_backward/exact_pairs.cuh"
#include "cuda/gla_backward/launch.hpp"
#include "cuda/gla_backward/pairs.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::gla_backward {

/// Whether the decays of a chunk are for the exact kernel.
template <int kD>
__device__ __forceinline__ bool is_strong(const GlaBackwardParams& p, unsigned chunk) {
  constexpr int kPanels = kD / kPanelChannels;
  bool strong = false;
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
    strong = strong || p.strong[static_cast<std::int64_t>(chunk) * kPanels + panel] != 0;
  }
  return strong;
}

template <class Block, class Shared>
__device__ __forceinline__ void start_loads(const GlaBackwardParams& p, Block& block,
                                            Shared& shared) {
  block.start_load(shared.u, p.u, shared.chunk.head);
  block.start_load(shared.z, p.z, shared.chunk.group);
  copy_async_commit();
}

/// All that is done once the loads have been started.
template <int kD, class Block, class Shared>
__device__ __forceinline__ void take_chunk(const GlaBackwardParams& p, Block& block,
                                           Shared& shared) {
  copy_async_wait<0>();
  __syncthreads();  // all rows of u and z are there
  block.make_p();
  const int panels = kD == kPanelChannels ? 1 : (p.own + kPanelChannels - 1) / kPanelChannels;
#pragma unroll 1
  for (int panel = 0; panel < panels; ++panel) block.take_channels(panel);
  block.put_shared_gradients();
  block.make_a();
  __syncthreads();  // A is there, and the tiles of channels are free
  block.template make_other<true>(p.dz, shared.u, p.z_flow);
  if (p.du.data != nullptr) block.template make_other<false>(p.du, shared.z, p.u_flow);
}

/// A block per chunk and head.
template <class T, int kD>
__global__ __launch_bounds__(kBlockThreads,
                             2) void pairs(const __grid_constant__ GlaBackwardParams p) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<PairsShared<kD>*>(shared_bytes);
  take_over_from_previous_launch();
  const unsigned chunk = chunk_of_block(p, blockIdx.x);
  if (threadIdx.x == 0) shared.chunk = chunk_place(p, chunk);
  const bool strong = is_strong<kD>(p, chunk);
  __syncthreads();  // the chunk's place is there
  if (shared.chunk.rows == 0) {
    if (p.dgamma_parts != nullptr && threadIdx.x == 0) p.dgamma_parts[chunk] = 0.0F;
    return;
  }
  if (strong) return;
  Pairs<T, kD> block(p, shared);
  start_loads(p, block, shared);
  take_chunk<kD>(p, block, shared);
}

template <class T, int kD>
__device__ __forceinline__ void take_strong_chunk(const GlaBackwardParams& p,
                                                  ExactPairsShared<kD>& shared) {
  ExactPairs<T, kD> block(p, shared);
  start_loads(p, block, shared);
  for (int i = static_cast<int>(threadIdx.x); i < kBlockWarps * kRun * kRun; i += kBlockThreads) {
    (&shared.a_near[0][0][0])[i] = 0.0F;
  }
  take_chunk<kD>(p, block, shared);
}

/// Strong chunks: each block looks for them among its share.
template <class T, int kD>
__global__ __launch_bounds__(kBlockThreads,
                             1) void exact_pairs(const __grid_constant__ GlaBackwardParams p) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<ExactPairsShared<kD>*>(shared_bytes);
  take_over_from_previous_launch();
  const auto chunks = static_cast<unsigned>(p.slots * p.heads);
  const unsigned lane = threadIdx.x % kWarpSize;
  for (unsigned first = blockIdx.x; first < chunks; first += gridDim.x * kWarpSize) {
    const unsigned mine = first + lane * gridDim.x;
    unsigned strong = __ballot_sync(kFullWarp, mine < chunks && is_strong<kD>(p, mine));
    for (; strong != 0; strong &= strong - 1) {
      const unsigned chunk = first + static_cast<unsigned>(__ffs(strong) - 1) * gridDim.x;
      if (threadIdx.x == 0) shared.chunk = chunk_place(p, chunk);
      __syncthreads();  // the chunk's place is there
      if (shared.chunk.rows > 0) take_strong_chunk<T, kD>(p, shared);
      __syncthreads();  // nothing of it is needed any more
    }
  }
}

template <class T, int kD>
void launch_pairs(const GlaBackwardParams& p, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(p.slots * p.heads));
  launch<pairs<T, kD>>({.grid = grid,
                        .block = dim3(kBlockThreads),
                        .shared_bytes = sizeof(PairsShared<kD>),
                        .overlaps_previous = true},
                       stream, p);
  constexpr std::int64_t kExactBlocks = 512;
  launch<exact_pairs<T, kD>>(
      {.grid = dim3(static_cast<unsigned>(std::min(p.slots * p.heads, kExactBlocks))),
       .block = dim3(kBlockThreads),
       .shared_bytes = sizeof(ExactPairsShared<kD>),
       .overlaps_previous = true},
      stream, p);
}

}  // namespace attune::cuda::gla_backward
