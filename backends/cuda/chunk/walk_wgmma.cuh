// The chunked walk on wgmma and TMA (sm_90a): one block walks one value tile of one head of a
// segment, chunk by chunk, in specialised warpgroups that meet at barriers in shared memory.
//
//   producers  three warps load the tiles of q, k and v, one makes decays
//   weights    P = mask(Q K^T) o decays
//   states     64 value channels each, S^T in registers from the first chunk to the last:
//                O^T = (S^T Q^T) o decays + V^T P^T
//                S^T = decay S^T + (V o decays)^T K
//
// The products of the next chunk with the state are queued before the outputs of this one are
// written. Blocks take items in turn, and producers run ahead across items.
#pragma once

#include <attune/core/config_axes.hpp>

#include "cuda/chunk/outputs.cuh"
#include "cuda/chunk/weights.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda {

#if ATTUNE_SM90A_CODE

/// The state at the begin of a segment: the initial one, and what the segments before it add.
template <class Shape>
__device__ __forceinline__ void begin_state(StateTile<Shape::kTileK>& state, const WalkParams& p,
                                            const WalkItem& item, const Lane& me, int warpgroup) {
  const int first_v = item.tile * Shape::kTileV + warpgroup * kStateRows;
  const auto scratch = [&](int segment) {
    return scratch_state<Shape::kTileK, Shape::kTileV>(p, item, segment,
                                                       warpgroup * kWarpgroupSize + me.thread);
  };
  if (item.segment == 0 && !p.scratch.keeps_initial) {
    load_state(state, p, item, me, first_v);
    return;
  }
  dependency_wait();
#pragma unroll
  for (int i = 0; i < StateTile<Shape::kTileK>::kCount; ++i) state[i] = 0.0F;
  if (item.segment == 0) {
    add_scratch<Shape::kTileK, Shape::kTileV>(state, 0.0F, scratch(p.segments - 1));
    return;
  }
  const float* const decays = p.scratch.decays + state_index(p, item) * p.segments;
  for (int segment = 0; segment < item.segment; ++segment) {
    add_scratch<Shape::kTileK, Shape::kTileV>(state, __ldcg(decays + segment), scratch(segment));
  }
}

/// The work of one state warpgroup.
template <class T, class Shape>
class StateWalk {
 public:
  __device__ __forceinline__ StateWalk(const WalkParams& p, WalkShared<Shape>& shared,
                                       int warpgroup)
      : p_(p), shared_(shared), warpgroup_(warpgroup) {}

  __device__ __forceinline__ void run() {
    for_each_item<Shape::kTileV>(p_, p_.segments, [&](const WalkItem& item) {
      begin_state<Shape>(state_, p_, item, me_, warpgroup_);
      if (item.count > 0) walk(item);
      if (p_.final.data != nullptr && item.segment == p_.segments - 1) {
        store_state(state_, p_, item, me_, item.tile * Shape::kTileV + warpgroup_ * kStateRows);
      }
    });
    writer_.release(shared_, me_);
  }

 private:
  /// A chunk's outputs go out while the next one's products with the state are under way.
  __device__ __forceinline__ void walk(const WalkItem& item) {
    for (int step = 0; step < item.count; ++step) {
      queue_read();
      if (step > 0) write(item, step - 1);
      update_and_read();
    }
    write(item, item.count - 1);
  }

  __device__ __forceinline__ void write(const WalkItem& item, int step) {
    writer_.write(p_, shared_, item, me_, item.row_of(step, p_.reverse), value_slot_, warpgroup_);
  }

  /// Queues what the next chunk reads of the state as it is now.
  __device__ __forceinline__ void queue_read() {
    shared_.decay_ring.wait_full(decay_at_);
    const float decay = shared_.decays[decay_at_.slot].all;
    shared_.q_ring.wait_full(chunk_at_);
    queue_state_read<T>(o_, state_, shared_address(shared_.q[chunk_at_.slot]), decay);
  }

  /// Brings the state behind the chunk, adds to its outputs what its tokens read of each other, and
  /// leaves them in the box that v came in.
  __device__ __forceinline__ void update_and_read() {
    value_slot_ = value_at_.slot;
    const ChunkDecays& decays = shared_.decays[decay_at_.slot];
    const std::uint32_t box = shared_address(shared_.v[value_at_.slot]) + warpgroup_ * kBoxBytes;
    ValueFragments values;
    shared_.v_ring.wait_full(value_at_);
    values.load(box, me_);
    values.template scale<T>(decays.write, me_);
    shared_.k_ring.wait_full(chunk_at_);
    wgmma_fence();
    queue_state_update<T>(state_, values, shared_address(shared_.k[chunk_at_.slot]));
    wgmma_commit();

    wgmma_wait<1>();
    wgmma_pin(o_);
    shared_.q_ring.release(chunk_at_.slot);
    scale_outputs(decays.read);
    shared_.decay_ring.release(decay_at_.slot);
    values.load(box, me_);
    shared_.weight_ring.wait_full(weight_at_);
    wgmma_pin(o_);
    wgmma_fence();
    add_weighted_values(values);
    wgmma_wait<0>();
    wgmma_pin(o_);
    state_.pin();
    shared_.k_ring.release(chunk_at_.slot);
    shared_.weight_ring.release(weight_at_.slot);
    store_outputs<T>(o_, box, me_);
    advance();
  }

  __device__ __forceinline__ void scale_outputs(const float* factors) {
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      const float2 factor = *reinterpret_cast<const float2*>(factors + 8 * n + me_.column);
#pragma unroll
      for (int i = 0; i < 4; ++i) o_[4 * n + i] *= i % 2 == 0 ? factor.x : factor.y;
    }
  }

  /// O^T += V^T P^T
  __device__ __forceinline__ void add_weighted_values(const ValueFragments& values) {
    const std::uint32_t weights = shared_address(shared_.weights[weight_at_.slot]);
#pragma unroll
    for (int s = 0; s < ValueFragments::kSteps; ++s) {
      wgmma_n64<T, Major::kK>(o_, values.step[s], matrix_descriptor(weights + s * kDepthBytes),
                              true);
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void advance() {
    chunk_at_.advance();
    value_at_.advance();
    decay_at_.advance();
    weight_at_.advance();
  }

  const WalkParams& p_;
  WalkShared<Shape>& shared_;
  const int warpgroup_;
  const Lane me_;
  StateTile<Shape::kTileK> state_;
  float o_[kChunkProduct];
  OutputWriter<T, Shape> writer_;
  int value_slot_ = 0;  // of the chunk whose outputs are to be written
  RingPosition<Shape::kStages> chunk_at_;
  RingPosition<Shape::kValueSlots> value_at_;
  RingPosition<Shape::kDecaySlots> decay_at_;
  RingPosition<Shape::kWeightSlots> weight_at_;
};

/// Arrivals: a copy's or a warp's for what is filled, a warp's or a warpgroup's for what is used.
template <class Shape>
__device__ __forceinline__ void init_rings(WalkShared<Shape>& shared) {
  constexpr int kWarps = kWarpgroupSize / kWarpSize;
  constexpr int kStateWarps = kWarps * Shape::kStateWarpgroups;
  if (threadIdx.x == 0) {
    shared.q_ring.init(1, kStateWarps + kWarps);
    shared.k_ring.init(1, kStateWarps + kWarps);
    shared.v_ring.init(1, Shape::kStateWarpgroups);
    shared.decay_ring.init(1, kStateWarps + kWarps);
    shared.weight_ring.init(kWarps, kStateWarps);
    barrier_init(&shared.k_landed, 1);
    barrier_init(&shared.v_landed, 1);
    barrier_init_fence();
  }
  __syncthreads();  // nobody touches a barrier before it is made
}

template <class T, class Shape>
__device__ __forceinline__ void produce(const WalkParams& p, WalkShared<Shape>& shared) {
  switch (warp_uniform(static_cast<int>(threadIdx.x) / kWarpSize)) {
    case 0:
      return load_tiles<Shape::kBoxesK, Shape::kTileV>(p, p.segments, p.q, false, false,
                                                       shared.q_ring, shared.q[0], nullptr);
    case 1:
      return load_tiles<Shape::kBoxesK, Shape::kTileV>(
          p, p.segments, p.k, false, true, shared.k_ring, shared.k[0], &shared.k_landed);
    case 2:
      return load_tiles<Shape::kBoxesV, Shape::kTileV>(
          p, p.segments, p.v, true, true, shared.v_ring, shared.v[0], &shared.v_landed);
    case 3:
      return make_decays<T, Shape::kTileV>(p, p.segments, shared.decay_ring, shared.decays);
  }
}

#endif

template <class T, class Config>
__global__ __launch_bounds__(
    WalkShape<Config>::kThreads,
    WalkShape<Config>::kBlocksPerSm) void walk_wgmma(const __grid_constant__ WalkParams p) {
#if ATTUNE_SM90A_CODE
  using Shape = WalkShape<Config>;
  auto& shared = *reinterpret_cast<WalkShared<Shape>*>(walk_memory);
  init_rings(shared);
  switch (const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x) / kWarpgroupSize)) {
    case 0:
      registers_shrink<Shape::kRegisters.producer>();
      produce<T>(p, shared);
      break;
    case 1:
      registers_shrink<Shape::kRegisters.weights>();
      make_weights<T>(p, shared);
      break;
    default:
      registers_grow<Shape::kRegisters.state>();
      StateWalk<T, Shape>(p, shared, warpgroup - 2).run();
  }
#endif
}

template <class T>
void launch_walk(const ChunkWgmmaConfig& config, const WalkParams& params, cudaStream_t stream) {
  dispatch(config, [&]<class Config>() {
    using Shape = WalkShape<Config>;
    launch<walk_wgmma<T, Config>>(
        {.grid = walk_grid(params, Shape::kTileV, Shape::kBlocksPerSm, params.segments),
         .block = Shape::kThreads,
         .shared_bytes = sizeof(WalkShared<Shape>),
         .overlaps_previous = params.segments > 1},
        stream, params);
  });
}

}  // namespace attune::cuda
