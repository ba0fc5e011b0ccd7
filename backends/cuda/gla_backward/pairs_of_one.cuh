// The kernels of pairs where one side has gates: what the other one makes is made here too.
#pragma once

#include "cuda/gla_backward/other_side.cuh"
#include "cuda/gla_backward/pairs_launch.cuh"

namespace attune::cuda::gla_backward {

template <class Block, int kOther>
struct PairsOfOneShared {
  typename Block::Shared pairs;
  OtherTiles<kOther> tiles;
};

template <class Block, class T, int kOther>
__device__ __forceinline__ void take_chunk(const GlaBackwardParams& p,
                                           PairsOfOneShared<Block, kOther>& shared) {
  Block block(p, shared.pairs);
  const OtherSide<T, kOther> other(p, shared.tiles, shared.pairs.p, shared.pairs.chunk);
  other.start_loads();
  copy_async_wait<0>();
  __syncthreads();  // all rows of u and z are there
  block.make_p(other);
  take_all_channels(p, block);
  block.template make_a<T>();
  __syncthreads();  // A is there, and the tiles of channels are free
  other.make_outputs(block.place(), shared.pairs.staged());
}

template <class T, int kOther>
__global__ __launch_bounds__(kBlockThreads, kOther <= 128 ? 2 : 1) void pairs(
    const __grid_constant__ GlaBackwardParams p) {
  using Block = Pairs<T, (kOther > 128)>;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<PairsOfOneShared<Block, kOther>*>(shared_bytes);
  take_over_from_previous_launch();
  if_weak(p, shared.pairs.chunk, [&] { take_chunk<Block, T>(p, shared); });
}

template <class T, int kOther>
__global__ __launch_bounds__(kBlockThreads,
                             1) void exact_pairs(const __grid_constant__ GlaBackwardParams p) {
  using Block = ExactPairs<T, (kOther > 128)>;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<PairsOfOneShared<Block, kOther>*>(shared_bytes);
  take_over_from_previous_launch();
  for_each_strong(p, shared.pairs.chunk, [&] { take_chunk<Block, T>(p, shared); });
}

template <class T, int kOther>
void launch_pairs(const GlaBackwardParams& p, cudaStream_t stream) {
  constexpr bool kParted = kOther > 128;
  launch_weak<pairs<T, kOther>>(p, sizeof(PairsOfOneShared<Pairs<T, kParted>, kOther>), stream);
  launch_strong<exact_pairs<T, kOther>>(p, sizeof(PairsOfOneShared<ExactPairs<T, kParted>, kOther>),
                                        stream);
}

}  // namespace attune::cuda::gla_backward
