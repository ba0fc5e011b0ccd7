// What single warps of a walk do for its state and its makers, one each.
#pragma once

#include "cuda/gla/forward/states.cuh"

#if ATTUNE_SM90A_CODE

namespace attune::cuda::gla::forward {

using chunk_wgmma::shared_memory;
using chunk_wgmma::TileLoader;

template <class Shape>
__device__ __forceinline__ void init_rings(WalkShared<Shape>& shared) {
  constexpr int kStateWarps = kWarpgroupSize / kWarpSize;
  if (threadIdx.x == 0) {
    shared.q_ring.init_copied(1, kStateWarps);
    shared.k_ring.init_copied(1, kStateWarps);
    shared.v_ring.init_copied(1, 1);
    for (SharedBarrier& full : shared.output_full) {
      barrier_init(&full, kStateWarps * kWarpArrivals);
    }
    barrier_init(&shared.v_landed, 1);
    shared.operands.init_rings();
    barrier_init_fence();
  }
  __syncthreads();  // all barriers are made before any is used
}

/// Loads what each chunk's products with the state read, or of that only what updates it.
template <bool kHasOutputs, class Shape>
__device__ __forceinline__ void load_operands(const WalkParams& p, const GlaParams& operands,
                                              const WalkProgress& progress,
                                              WalkShared<Shape>& shared) {
  constexpr std::uint32_t kTileBytes = WalkShared<Shape>::kTileBytes;
  constexpr std::uint32_t kDecayBytes = Shape::kTileK * sizeof(float);
  const bool leads = threadIdx.x % kWarpSize == 0;
  RingPosition<Shape::kStages> at;
  for_each_chunk<Shape>(p, main_walk(p), [&](const WalkItem& item, int row) {
    const std::int64_t index = chunk_index(p, operands.slots, item, row);
    const unsigned char* const tiles =
        workspace_panel(operands.operand_panels, index, 2 * Shape::kPanelsK);
    const auto load_tile = [&](std::byte* tile, int operand, SharedBarrier* full) {
#pragma unroll
      for (int panel = 0; panel < Shape::kPanelsK; ++panel) {
        bulk_load(shared_address(tile + panel * kPanelBytes),
                  tiles + (2 * panel + operand) * kPanelBytes, kPanelBytes, full);
      }
    };
    shared.q_ring.wait_empty(at);
    if (leads) {
      wait_for_publication(&progress.is_made[index]);
      SharedBarrier* const full = &shared.q_ring.full[at.stage];
      barrier_arrive_expecting(full, (kHasOutputs ? kTileBytes : 0) + kDecayBytes);
      if (kHasOutputs) load_tile(shared.q[at.stage], 0, full);
      bulk_load(shared_address(shared.decays[at.stage]),
                operands.total_decay + index * Shape::kTileK, kDecayBytes, full);
    }
    shared.k_ring.wait_empty(at);
    if (leads) {
      SharedBarrier* const full = &shared.k_ring.full[at.stage];
      barrier_arrive_expecting(full, kTileBytes + (kHasOutputs ? kPanelBytes : 0));
      load_tile(shared.k[at.stage], 1, full);
      if (kHasOutputs) {
        bulk_load(shared_address(shared.scores[at.stage]),
                  workspace_panel(operands.scores, index, 1), kPanelBytes, full);
      }
    }
    __syncwarp();  // or others might wait for a phase that has long been followed by another
    at.advance();
  });
}

template <class Shape>
__device__ __forceinline__ void load_values(const WalkParams& p, WalkShared<Shape>& shared) {
  TileLoader<Shape::kPanelsV, Shape::kValueStages> v(p, p.v, shared.v_ring, shared.v[0],
                                                     &shared.v_landed);
  for_each_chunk<Shape>(p, main_walk(p), [&](const WalkItem& item, int row) {
    v.load(item, row, item.tile * Shape::kTileV);
  });
}

/// Hands stages of v back that have been read.
template <class Shape>
__device__ __forceinline__ void release_values(const WalkParams& p, WalkShared<Shape>& shared) {
  RingPosition<Shape::kValueStages> at;
  for_each_chunk<Shape>(p, main_walk(p), [&](const WalkItem&, int) {
    barrier_wait(&shared.output_full[at.stage], at.phase);
    shared.v_ring.release(at.stage);
    at.advance();
  });
}

/// The work of one of the warps, of a walk that has outputs or only makes what segments add.
template <class T, bool kHasOutputs, class Shape>
__device__ __forceinline__ void produce(int warp, const WalkParams& p, const GlaParams& operands,
                                        const WalkProgress& progress, WalkShared<Shape>& shared) {
  switch (warp) {
    case 0:
      return load_operands<kHasOutputs>(p, operands, progress, shared);
    case 1:
      return load_values(p, shared);
    case 2:
      if constexpr (kHasOutputs) {
        return chunk_wgmma::store_tiles<T>(p, shared);
      } else {
        return release_values(p, shared);
      }
    case 3:
      return OperandCourier<T, Shape, !kHasOutputs>(p, operands, progress, shared.operands).run();
  }
}

/// Calls make() of makers, produce(warp) of producers and walk() of the state's warpgroup.
template <class Shape, class Make, class Produce, class Walk>
__device__ __forceinline__ void with_roles(Make&& make, Produce&& produce, Walk&& walk) {
  constexpr int kMakerWarpgroups = kBlockThreads / kWarpgroupSize;
  const int warp = warp_uniform(static_cast<int>(threadIdx.x) / kWarpSize);
  const int warpgroup = warp / (kWarpgroupSize / kWarpSize);
  if (warpgroup < kMakerWarpgroups) {
    registers_shrink<Shape::kMakerRegisters>();
    make();
  } else if (warpgroup == kMakerWarpgroups) {
    registers_shrink<Shape::kProducerRegisters>();
    produce(warp - kBlockThreads / kWarpSize);
  } else {
    registers_grow<Shape::kStateRegisters>();
    walk();
  }
}

}  // namespace attune::cuda::gla::forward

#endif
