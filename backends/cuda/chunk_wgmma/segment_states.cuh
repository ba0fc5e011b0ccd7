// What the segments of sequences add to the state: the chunked walk without outputs. One block
// walks one value tile of one head of a segment, or of a subsegment. No segment starts from the
// last one's state: those are left out where no summaries are wanted.
#pragma once

#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/wgmma_walk/state_memory.cuh"

namespace attune::cuda::chunk_wgmma {

template <class Shape>
struct SegmentShared {
  static constexpr int kStages = 4;
  static constexpr int kThreads = kWarpgroupSize * (1 + Shape::kStateWarpgroups);
  static constexpr int kBlocks = first_walk_blocks(Shape::kConfig);
  std::byte k[kStages][Shape::kPanelsK * kPanelBytes];
  std::byte v[kStages][Shape::kPanelsV * kPanelBytes];
  ChunkDecays decays[kStages];
  Ring<kStages> k_ring;
  Ring<kStages> v_ring;
  Ring<kStages> decay_ring;
  SharedBarrier k_landed;
  SharedBarrier v_landed;
};

#if ATTUNE_SM90A_CODE

template <class T, class Shape>
__device__ __forceinline__ void walk_segment(StateTile<Shape::kTileK>& state,
                                             SegmentShared<Shape>& shared, int count,
                                             RingPosition<SegmentShared<Shape>::kStages>& at,
                                             const Lane& me, int warpgroup) {
  for (int step = 0; step < count; ++step) {
    ValueFragments values;
    const ChunkDecays& decays = shared.decays[at.stage];
    shared.decay_ring.wait_full(at);
    shared.v_ring.wait_full(at);
    values.load(shared_address(shared.v[at.stage]) + warpgroup * kPanelBytes, me);
    values.template scale<T>(decays.to_end, me);
    shared.v_ring.release(at.stage);
    state.scale(decays.total);
    shared.decay_ring.release(at.stage);
    shared.k_ring.wait_full(at);
    wgmma_fence();
    queue_state_update<T>(state, values, shared_address(shared.k[at.stage]));
    wgmma_commit();
    wgmma_wait<0>();
    state.pin();
    values.hold();
    shared.k_ring.release(at.stage);
    at.advance();
  }
}

/// The work of one state warpgroup. The first subsegment starts from the initial state, unless all
/// are summed up.
template <class T, class Shape>
__device__ __forceinline__ void make_segment_states(const WalkParams& p,
                                                    SegmentShared<Shape>& shared, int warpgroup) {
  constexpr int kTileK = Shape::kTileK;
  constexpr int kTileV = Shape::kTileV;
  const Lane me;
  StateTile<kTileK> state;
  RingPosition<SegmentShared<Shape>::kStages> at;
  for_each_item<Shape>(p, first_walk(p), [&](const WalkItem& item) {
    const auto scratch = [&](int subsegment) {
      return scratch_state<Shape>(p, item, subsegment, warpgroup, me.thread);
    };
    if (item.subsegment == 0 && !p.scratch.sums_all) {
      load_state<Shape>(state, p, item, me, item.tile * kTileV + warpgroup * kStateRows);
      if (p.scratch.saves_initial) {
        store_scratch(state, scratch(last_subsegment<Shape>(p, item)));
      }
    } else {
      state.clear();
    }
    walk_segment<T>(state, shared, item.count, at, me, warpgroup);
    store_scratch(state, scratch(item.subsegment));
  });
}

template <class Shape>
__device__ __forceinline__ void init_rings(SegmentShared<Shape>& shared) {
  constexpr int kStateWarps = kWarpgroupSize / kWarpSize * Shape::kStateWarpgroups;
  if (threadIdx.x == 0) {
    shared.k_ring.init_copied(1, kStateWarps);
    shared.v_ring.init_copied(1, kStateWarps);
    shared.decay_ring.init_published(1, kStateWarps);
    barrier_init(&shared.k_landed, 1);
    barrier_init(&shared.v_landed, 1);
    barrier_init_fence();
  }
  __syncthreads();  // all barriers are made before any is used
}

/// `tile_step`: from one value tile to the next in the operand's channels.
template <class Shape, int kPanels, int kStages>
__device__ __forceinline__ void load_operand(const WalkParams& p, const WalkOperand& operand,
                                             int tile_step, Ring<kStages>& ring, std::byte* stages,
                                             SharedBarrier* landed) {
  TileLoader<kPanels, kStages> loader(p, operand, ring, stages, landed);
  for_each_chunk<Shape>(p, first_walk(p), [&](const WalkItem& item, int row) {
    loader.load(item, row, item.tile * tile_step);
  });
}

template <class T, bool kInclusive, class Shape>
__device__ __forceinline__ void produce(const WalkParams& p, SegmentShared<Shape>& shared) {
  switch (warp_uniform(static_cast<int>(threadIdx.x) / kWarpSize)) {
    case 0:
      return load_operand<Shape, Shape::kPanelsK>(p, p.k, 0, shared.k_ring, shared.k[0],
                                                  &shared.k_landed);
    case 1:
      return load_operand<Shape, Shape::kPanelsV>(p, p.v, Shape::kTileV, shared.v_ring, shared.v[0],
                                                  &shared.v_landed);
    case 2:
      return make_decays<T, Shape, kInclusive>(p, first_walk(p), shared.decay_ring, shared.decays);
  }
}

#endif

template <class T, class Config, bool kInclusive, WalkBatch kBatch>
__global__ __launch_bounds__(
    SegmentShared<WalkShape<Config>>::kThreads,
    SegmentShared<WalkShape<Config>>::kBlocks) void segment_states(const __grid_constant__
                                                                       WalkParams p) {
#if ATTUNE_SM90A_CODE
  using Shape = WalkShape<Config, kBatch>;
  auto& shared = *reinterpret_cast<SegmentShared<Shape>*>(shared_memory);
  init_rings(shared);
  dependency_wait();
  dependents_launch();  // segments 0 need nothing of this, only what it has waited for
  const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x) / kWarpgroupSize);
  if (warpgroup == 0) {
    produce<T, kInclusive>(p, shared);
  } else {
    make_segment_states<T>(p, shared, warpgroup - 1);
  }
#endif
}

/// Stages are an axis of the walk alone: the configs of one tile share an instance.
template <class T>
void launch_segment_states(const ChunkWgmmaConfig& config, const WalkParams& params,
                           cudaStream_t stream) {
  with_instance(config.of_sums(), [&]<class Config>() {
    if constexpr (Config::kValue == Config::kValue.of_sums()) {
      using Shared = SegmentShared<WalkShape<Config>>;
      const LaunchShape shape{
          .grid = walk_grid(params, Config::kValue.tile_v, first_walk(params), Shared::kBlocks),
          .block = Shared::kThreads,
          .shared_bytes = sizeof(Shared),
          .overlaps_previous = true};
      if (params.parts.tokens > 0) {
        launch<segment_states<T, Config, false, WalkBatch::kParts>>(shape, stream, params);
        return;
      }
      with_value<false, true>(params.inclusive, [&]<bool kInclusive>() {
        launch<segment_states<T, Config, kInclusive, WalkBatch::kAny>>(shape, stream, params);
      });
    }
  });
}

}  // namespace attune::cuda::chunk_wgmma
