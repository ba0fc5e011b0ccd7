// The chunks whose decays are too strong for scores (chunk_scores.cu), token by token: a block each, a
// tile of keys by values after the other, each of which adds to the gradients of its channels.
#include <algorithm>

#include "cuda/chunk_mma/backward/channel_sums.cuh"
#include "cuda/chunk_mma/backward/strong_chunk.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace strong_chunks_kernels {  // nvcc names an anonymous one anew in every build

using Own = Warps<4>;

struct StrongMemory {
  std::byte panels[4][kPanelBytes];  // q, k, v and do, as they are
  ChannelMemory<1> keys;
  ChannelMemory<1> values;
  KeyGateMemory<Own, 1> gates;
};

static_assert(sizeof(StrongMemory) <= panels_shared_bytes(true));

/// Loads a panel of a side's tokens and the decays of each; nothing reads them before a barrier.
template <bool kQuads>
__device__ __forceinline__ void load_side(const BackwardParams& p, const Chunk& chunk,
                                          const ChannelSide& side, int panel, StrongMemory& memory,
                                          int reads, int writes, ChannelMemory<1>& channels) {
  LoadedPanel<Own> loaded_reads;
  LoadedPanel<Own> loaded_writes;
  fetch_tokens<kQuads>(loaded_reads, p, side.reads, chunk, panel);
  fetch_tokens<kQuads>(loaded_writes, p, side.writes, chunk, panel);
  keep_token_decays<Own>(channels, p, side, chunk, panel * kPanelChannels);
  loaded_reads.store(panel_at(memory.panels[0], reads), memory.panels[0]);
  loaded_writes.store(panel_at(memory.panels[0], writes), memory.panels[0]);
}

/// The gradients that a tile of the states has part in.
template <bool kValueGates>
__device__ __forceinline__ void walk_tile(const BackwardParams& p, const Chunk& chunk,
                                          StrongMemory& memory, int first_key, int first_value) {
  const StrongChunk<Own, 1, 1, kValueGates> strong(p, chunk, memory.panels[0], memory.keys.logs,
                                                   kValueGates ? &memory.values.logs : nullptr,
                                                   first_key, first_value);
  ChannelTile<1>& gradients = memory.gates.gradients;
  strong.walk_values(&gradients);
  if constexpr (kValueGates) {
    __syncthreads();  // the gradients of the gates of values are there
    store_channel_gates<Own>(gradients, p, chunk, p.values, first_value, strong.adds_values());
    __syncthreads();  // they are done with
  }
  strong.walk_keys(&gradients);
  __syncthreads();  // the gradients of the gates of keys are there
  store_channel_gates<Own>(gradients, p, chunk, p.keys, first_key, strong.adds_keys());
  if (wants_shared_gates(p)) {
    store_shared_gates_of(memory.gates, p, chunk, true,
                          p.adds_gates || first_key > 0 || first_value > 0, first_key);
  }
  __syncthreads();  // tokens and gradients are done with
}

template <bool kValueGates, bool kQuads>
__device__ __forceinline__ void walk_chunk(const BackwardParams& p, const Chunk& chunk,
                                           StrongMemory& memory) {
#pragma unroll 1
  for (int key = 0; key * kPanelChannels < p.keys.channels; ++key) {
#pragma unroll 1
    for (int value = 0; value * kPanelChannels < p.values.channels; ++value) {
      load_side<kQuads>(p, chunk, p.keys, key, memory, 0, 1, memory.keys);
      load_side<kQuads>(p, chunk, p.values, value, memory, 3, 2, memory.values);
      __syncthreads();  // tokens and the decays of each are there
      walk_tile<kValueGates>(p, chunk, memory, key * kPanelChannels, value * kPanelChannels);
    }
  }
}

/// Of the number-th of the walked chunks of all heads.
__device__ __forceinline__ bool is_strong(const BackwardParams& p, std::int64_t number) {
  const std::int64_t of_head = quotient(number, p.heads);
  const std::int64_t chunk = p.walked.numbers == nullptr ? of_head : p.walked.numbers[of_head];
  return chunk >= 0 && p.scores[chunk * p.heads + number - of_head * p.heads].strong != 0;
}

/// grid: as many blocks as there are multiprocessors, which look for strong chunks, a thread each.
template <bool kValueGates, bool kQuads>
__global__ __launch_bounds__(Own::kThreads,
                             1) void strong_chunks(const __grid_constant__ BackwardParams p) {
  extern __shared__ __align__(128) std::byte shared[];
  auto& memory = *reinterpret_cast<StrongMemory*>(shared);
  __shared__ Chunk chunk;
  __shared__ bool strong[Own::kThreads];
  const std::int64_t all = p.heads * p.walked_chunks();
  const std::int64_t step = gridDim.x;
  for (std::int64_t first = blockIdx.x; first < all; first += step * Own::kThreads) {
    const std::int64_t own = first + threadIdx.x * step;
    strong[threadIdx.x] = own < all && is_strong(p, own);
    if (__syncthreads_or(strong[threadIdx.x] ? 1 : 0) == 0) continue;
    for (int i = 0; i < Own::kThreads; ++i) {
      if (!strong[i]) continue;
      if (threadIdx.x == 0) find_chunk(p, first + i * step, chunk);
      __syncthreads();  // the chunk is known
      walk_chunk<kValueGates, kQuads>(p, chunk, memory);
    }
    __syncthreads();  // these chunks are done
  }
}

}  // namespace strong_chunks_kernels

void launch_strong_chunks(const BackwardParams& p, cudaStream_t stream) {
  with_value<false, true>(p.values.gates.exist, [&]<bool kValueGates>() {
    with_value<false, true>(p.quads, [&]<bool kQuads>() {
      constexpr std::int64_t kMostBlocks = 132;  // of which each takes a multiprocessor
      launch<strong_chunks<kValueGates, kQuads>>(
          {.grid = grid_of(std::min(p.heads * p.walked_chunks(), kMostBlocks)),
           .block = Own::kThreads,
           .shared_bytes = sizeof(StrongMemory)},
          stream, p);
    });
  });
}

}  // namespace attune::cuda::chunk_mma::backward
