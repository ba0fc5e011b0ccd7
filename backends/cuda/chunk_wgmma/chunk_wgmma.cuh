// The chunked walk on wgmma and TMA (sm_90a): one block walks one value tile of one head of a
// segment, chunk by chunk, in specialised warpgroups that meet at barriers in shared memory.
//
//   producers  one warp each loads q and k, loads v, stores o, makes decays
//   scores     P = mask(Q K^T) o decays
//   states     64 value channels each, S^T in registers from the first chunk to the last:
//                O^T = (S^T Q^T) o decays + V^T P^T
//                S^T = decay S^T + (V o decays)^T K
//
// Outputs go out from the stages that v came in. Blocks take items in turn, and producers run
// ahead across items.
#pragma once

#include "cuda/chunk_wgmma/scores.cuh"
#include "cuda/chunk_wgmma/state_walk.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_wgmma {

#if ATTUNE_SM90A_CODE

template <class Shape>
__device__ __forceinline__ void init_rings(WalkShared<Shape>& shared) {
  constexpr int kWarps = kWarpgroupSize / kWarpSize;
  constexpr int kStateWarps = kWarps * Shape::kStateWarpgroups;
  if (threadIdx.x == 0) {
    shared.q_ring.init_copied(1, kStateWarps + kWarps);
    shared.k_ring.init_copied(1, kStateWarps + kWarps);
    shared.v_ring.init_copied(1, 1);
    for (SharedBarrier& full : shared.output_full) {
      barrier_init(&full, kStateWarps * kWarpArrivals);
    }
    shared.decay_ring.init_published(1, kStateWarps + kWarps);
    shared.score_ring.init_published(kWarps, kStateWarps);
    barrier_init(&shared.k_landed, 1);
    barrier_init(&shared.v_landed, 1);
    barrier_init_fence();
  }
  __syncthreads();  // all barriers are made before any is used
}

template <class Shape>
__device__ __forceinline__ void load_queries_and_keys(const WalkParams& p,
                                                      WalkShared<Shape>& shared) {
  using Loader = TileLoader<Shape::kPanelsK, Shape::kStages, Shape::kChunksUnderWay>;
  Loader q(p, p.q, shared.q_ring, shared.q[0], nullptr);
  Loader k(p, p.k, shared.k_ring, shared.k[0], &shared.k_landed);
  for_each_chunk<Shape>(p, main_walk(p), [&](const WalkItem& item, int row) {
    q.load(item, row, 0);
    k.load(item, row, 0);
  });
}

template <class Shape>
__device__ __forceinline__ void load_values(const WalkParams& p, WalkShared<Shape>& shared) {
  TileLoader<Shape::kPanelsV, Shape::kValueStages, Shape::kChunksUnderWay> v(
      p, p.v, shared.v_ring, shared.v[0], &shared.v_landed);
  for_each_chunk<Shape>(p, main_walk(p), [&](const WalkItem& item, int row) {
    v.load(item, row, item.tile * Shape::kTileV);
  });
}

template <class T, class Shape>
__device__ __forceinline__ void produce(const WalkParams& p, WalkShared<Shape>& shared) {
  switch (warp_uniform(static_cast<int>(threadIdx.x) / kWarpSize)) {
    case 0:
      return load_queries_and_keys(p, shared);
    case 1:
      return load_values(p, shared);
    case 2:
      return store_tiles<T>(p, shared);
    case 3:
      return make_decays<T, Shape>(p, main_walk(p), shared.decay_ring, shared.decays);
  }
}

#endif

template <class T, class Config, WalkBatch kBatch>
__global__ __launch_bounds__(WalkShape<Config>::kThreads,
                             1) void chunk_wgmma(const __grid_constant__ WalkParams p) {
#if ATTUNE_SM90A_CODE
  using Shape = WalkShape<Config, kBatch>;
  static_assert(sizeof(WalkShared<Shape>) <= kMostSharedBytes);
  auto& shared = *reinterpret_cast<WalkShared<Shape>*>(shared_memory);
  init_rings(shared);
  // Else before the scratch of the launch before is read, if that is what this is behind.
  const bool reads_none = p.segments == 1 || p.scratch.sums_all;
  if (!Shape::kIsInParts && reads_none && !p.runs_beside_previous) dependency_wait();
  dependents_launch();
  clear_rows_behind<T>(p.sequences, p.extents.sequences, p.o_rows, p.extents.heads, p.extents.V,
                       static_cast<int>(threadIdx.x), Shape::kThreads);
  const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x) / kWarpgroupSize);
  constexpr int kFirstOfStates = 1 + Shape::kScoreWarpgroups;
  if (warpgroup == 0) {
    registers_shrink<Shape::kRegisters.producer>();
    produce<T>(p, shared);
  } else if (warpgroup < kFirstOfStates) {
    registers_shrink<Shape::kRegisters.scores>();
    make_scores<T>(p, shared, warpgroup - 1);
  } else {
    registers_grow<Shape::kRegisters.state>();
    StateWalk<T, Shape>(p, shared, warpgroup - kFirstOfStates).run();
  }
  // The launch behind this waits for this one alone, of which no block may have needed the first.
  if (Shape::kIsInParts || p.runs_beside_previous) dependency_wait();
#endif
}

template <class T>
void launch_walk(const ChunkWgmmaConfig& config, const WalkParams& params, cudaStream_t stream) {
  with_instance(config.instance(), [&]<class Config>() {
    if constexpr (Config::kValue.is_instance()) {
      using Shape = WalkShape<Config>;
      with_value_of<kWalkBatches>(walk_batch(params), [&]<WalkBatch kBatch>() {
        if constexpr (kBatch != WalkBatch::kSnapshots || !Config::kValue.is_widest()) {
          launch<chunk_wgmma<T, Config, kBatch>>(
              {.grid = walk_grid(params, Shape::kTileV, main_walk(params), 1),
               .block = Shape::kThreads,
               .shared_bytes = sizeof(WalkShared<Shape>),
               .overlaps_previous = true},
              stream, params);
        }
      });
    }
  });
}

}  // namespace attune::cuda::chunk_wgmma
