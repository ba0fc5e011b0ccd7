// The kernels of pairs where one side has gates: what the other one makes is made here too.
#pragma once

#include "cuda/gla/other_side.cuh"
#include "cuda/gla/pairs_launch.cuh"

namespace attune::cuda::gla_backward {

template <class Shared, int kD>
struct PairsOfOneShared {
  Shared pairs;
  OtherTiles<kD> tiles;
};

#if ATTUNE_SM90A_CODE

template <class Block, class T, int kD>
__device__ __forceinline__ void take_chunk(const GlaBackwardParams& p,
                                           PairsOfOneShared<typename Block::Shared, kD>& shared,
                                           TileLoads& loads) {
  Block block(p, shared.pairs, loads);
  const OtherSide<T, kD, Block::kThreads> other(p, shared.tiles, shared.pairs.chunk);
  other.start_loads();
  block.begin();
  block.make_p(other);
  take_all_channels(p, block);
  other.make_outputs(block.make_a(), block.staged(), loads);
}

#endif

template <class T, int kD>
__global__ __launch_bounds__(PairsShared<kD>::kThreads, PairsShared<kD>::kBlocks) void pairs(
    const __grid_constant__ GlaBackwardParams p) {
#if ATTUNE_SM90A_CODE
  using Block = Pairs<T, kD, false>;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<PairsOfOneShared<typename Block::Shared, kD>*>(shared_bytes);
  take_over_from_previous_launch();
  TileLoads loads(shared.pairs.full);
  if_weak(p, shared.pairs.chunk, loads, [&] { take_chunk<Block, T>(p, shared, loads); });
#endif
}

template <class T, int kD>
__global__ __launch_bounds__(kBlockThreads,
                             1) void exact_pairs(const __grid_constant__ GlaBackwardParams p) {
#if ATTUNE_SM90A_CODE
  using Block = ExactPairs<T, (kD > 128)>;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<PairsOfOneShared<typename Block::Shared, kD>*>(shared_bytes);
  take_over_from_previous_launch();
  TileLoads loads(shared.pairs.full);
  for_each_strong(p, shared.pairs.chunk, loads, [&] { take_chunk<Block, T>(p, shared, loads); });
#endif
}

template <class T, int kD>
void launch_pairs(const GlaBackwardParams& p, cudaStream_t stream) {
  using Weak = PairsShared<kD>;
  launch_weak<pairs<T, kD>>(p, Weak::kThreads, sizeof(PairsOfOneShared<Weak, kD>), stream);
  launch_strong<exact_pairs<T, kD>>(p, sizeof(PairsOfOneShared<ExactPairsShared, kD>), stream);
}

}  // namespace attune::cuda::gla_backward
