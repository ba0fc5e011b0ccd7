// The kernel of parallel.hpp: a warpgroup of producers, and two that make the outputs of a chunk each,
// or take the chunks before one in turns and add up what both have.
#pragma once

#include "cuda/chunk_wgmma/parallel/team.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_wgmma {

template <class T, class Config>
__global__ __launch_bounds__(ParallelShape<Config>::kThreads,
                             1) void parallel_form(const __grid_constant__ ParallelParams params) {
#if ATTUNE_SM90A_CODE
  using Shape = ParallelShape<Config>;
  constexpr int kWarps = kWarpgroupSize / kWarpSize;
  auto& shared = *reinterpret_cast<ParallelShared<Shape>*>(shared_memory);
  const WalkParams& p = params.walk;
  if (threadIdx.x == 0) {
    constexpr int kReaders = Shape::kOwn == 1 ? kWarps : Shape::kTeams * kWarps;
    shared.q_ring.init_copied(1, 1);
    shared.k_ring.init_copied(1, kReaders);
    shared.v_ring.init_copied(1, kReaders);
    shared.decay_ring.init_published(1, kReaders);
    barrier_init(&shared.rows_full, kWarpArrivals);
    barrier_init(&shared.k_landed, 1);
    barrier_init(&shared.v_landed, 1);
    barrier_init_fence();
  }
  __syncthreads();  // all barriers are made before any is used
  if (!p.runs_beside_previous) dependency_wait();
  dependents_launch();
  clear_rows_behind<T>(p.sequences, p.extents.sequences, p.o_rows, p.extents.heads, p.extents.V,
                       static_cast<int>(threadIdx.x), Shape::kThreads);
  const ParallelItem item = parallel_item<Shape>(params);
  const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x) / kWarpgroupSize);
  if (!item.is_left_out) {
    if (warpgroup == 0) {
      registers_shrink<Shape::kProducerRegisters>();
      produce<T>(p, item, shared);
    } else {
      registers_grow<Shape::kTeamRegisters>();
      Team<T, Shape>(p, item, shared, warpgroup - 1).make_outputs();
    }
  }
  // What comes behind waits for this launch alone.
  if (p.runs_beside_previous) dependency_wait();
#endif
}

template <class T>
void launch_parallel(const ParallelWgmmaConfig& config, const ParallelParams& params,
                     cudaStream_t stream) {
  with_instance(config, [&]<class Config>() {
    using Shape = ParallelShape<Config>;
    static_assert(sizeof(ParallelShared<Shape>) <= kMostSharedBytes);
    launch<parallel_form<T, Config>>({.grid = dim3(params.blocks),
                                      .block = Shape::kThreads,
                                      .shared_bytes = sizeof(ParallelShared<Shape>),
                                      .overlaps_previous = true},
                                     stream, params);
  });
}

}  // namespace attune::cuda::chunk_wgmma
