// The walk: one block walks 64 value channels of a head of a sequence, chunk by chunk. Blocks of the same
// head make its operands for one another.
//
//   makers     two warpgroups make operands of a part of the chunks (operands.cuh)
//   producers  one warp each stores operands, loads those of all chunks, loads v, stores o
//   state      one warpgroup has S^T in registers from the first chunk to the last (states.cuh)
//
// Outputs go out from the stages that v came in.
#pragma once

#include <algorithm>

#include "cuda/chunks/chunk_walk.cuh"
#include "cuda/gla/forward/segment_sums.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/runtime/multiprocessors.hpp"

namespace attune::cuda::gla::forward {

/// Nothing is taken or made.
inline __global__ void begin_progress(const WalkProgress progress, std::int64_t walks,
                                      std::int64_t chunks) {
  take_over_from_previous_launch();
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < walks; i += step) progress.taken[i] = 0;
  for (std::int64_t i = first; i < chunks; i += step) progress.is_made[i] = 0;
}

template <class T, class Config>
__global__ __launch_bounds__(WalkShape<Config>::kThreads,
                             1) void walk_chunks(const __grid_constant__ WalkParams p,
                                                 const __grid_constant__ GlaParams operands,
                                                 const __grid_constant__ WalkProgress progress) {
#if ATTUNE_SM90A_CODE
  using Shape = WalkShape<Config>;
  static_assert(sizeof(WalkShared<Shape>) <= chunk_wgmma::kMostSharedBytes);
  auto& shared = *reinterpret_cast<WalkShared<Shape>*>(shared_memory);
  init_rings(shared);
  take_over_from_previous_launch();
  clear_rows_behind<T>(p.sequences, p.extents.sequences, p.o_rows, p.extents.heads, p.extents.V,
                       static_cast<int>(threadIdx.x), Shape::kThreads);
  with_roles<Shape>(
      [&] {
        ChunkOperands<T, OperandsShared<Shape::kTileK>>(operands, shared.operands).make_all();
      },
      [&](int warp) { produce<T, true>(warp, p, operands, progress, shared); },
      [&] { StateWalk<T, Shape>(p, shared).run(); });
#endif
}

template <class T>
void launch_walk(const ChunkGlaConfig& config, const WalkParams& params, const GlaParams& operands,
                 const WalkProgress& progress, const SegmentSums& sums, cudaStream_t stream) {
  constexpr std::int64_t kThreads = 256;
  const std::int64_t walks =
      params.extents.sequences * params.extents.heads * std::int64_t{params.segments};
  const std::int64_t chunks = operands.slots * operands.heads;
  const std::int64_t blocks =
      std::min((std::max(walks, chunks) + kThreads - 1) / kThreads, multiprocessor_count());
  launch<begin_progress>({.grid = dim3(static_cast<unsigned>(blocks)),
                          .block = dim3(kThreads),
                          .overlaps_previous = true},
                         stream, progress, walks, chunks);
  WalkParams main = params;
  if (params.segments > 1) {
    launch_sums<T>(params, operands, progress, sums, stream);
    main.initial = sums.starts_view<ConstStateView>(params.extents);
  }
  with_instance(config, [&]<class Config>() {
    using Shape = WalkShape<Config>;
    launch<walk_chunks<T, Config>>({.grid = walk_grid(params, kValueTile, main_walk(params), 1),
                                    .block = Shape::kThreads,
                                    .shared_bytes = sizeof(WalkShared<Shape>),
                                    .overlaps_previous = true},
                                   stream, main, operands, progress);
  });
}

}  // namespace attune::cuda::gla::forward
