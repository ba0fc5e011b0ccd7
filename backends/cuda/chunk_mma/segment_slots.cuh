// Segments' states in the workspace. A warp's registers go there as they are, so blocks that write
// and read them may have different numbers of warps.
#pragma once

#include "cuda/chunks/segment_walk.cuh"
#include "shape.cuh"

namespace attune::cuda {

/// A segment of the block's head, counted over all heads.
__device__ __forceinline__ std::int64_t segment_slot(const SegmentWalkParams& p, const Walk& walk,
                                                     int segment) {
  return (walk.sequence * p.heads + walk.head) * p.segments + segment;
}
/// This lane's float4s of a slot: number j is at [j * kWarpSize].
template <class Shape>
__device__ __forceinline__ float4* slot_elements(const SegmentWalkParams& p, const Walk& walk,
                                                 std::int64_t slot) {
  constexpr int kWarps = Shape::kConfig.warps;
  const auto warp = static_cast<int>(threadIdx.x) / kWarpSize + walk.value_tile * kWarps;
  const std::int64_t row = slot * p.value_tiles * kWarps + warp;
  return p.segment_states + row * (Shape::kKeys / 8 * kWarpSize) + threadIdx.x % kWarpSize;
}

template <class Shape>
__device__ __forceinline__ void store_slot(const State<Shape>& state, const SegmentWalkParams& p,
                                           const Walk& walk, std::int64_t slot) {
  float4* const to = slot_elements<Shape>(p, walk, slot);
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 8; ++j) {
    to[j * kWarpSize] = {state[j][0], state[j][1], state[j][2], state[j][3]};
  }
}

/// state = decay * state + the slot's.
template <class Shape>
__device__ __forceinline__ void add_slot(State<Shape>& state, const SegmentWalkParams& p,
                                         const Walk& walk, std::int64_t slot, float decay) {
  const float4* const from = slot_elements<Shape>(p, walk, slot);
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 8; ++j) {
    const float4 added = from[j * kWarpSize];
    state[j][0] = fmaf(state[j][0], decay, added.x);
    state[j][1] = fmaf(state[j][1], decay, added.y);
    state[j][2] = fmaf(state[j][2], decay, added.z);
    state[j][3] = fmaf(state[j][3], decay, added.w);
  }
}

/// The state at the start of the block's segment. The last slot has a copy of the initial state:
/// the last segment may write the final state over it while the first one still has to start.
template <class Shape>
__device__ __forceinline__ void load_segment_start(State<Shape>& state, const SegmentWalkParams& p,
                                                   const Walk& walk) {
  if (p.segments == 1) {
    load_initial<Shape>(state, p, walk);
    return;
  }
  clear<Shape>(state);
  if (walk.segment == 0) {
    if (p.initial_state.data == nullptr) return;
    add_slot<Shape>(state, p, walk, segment_slot(p, walk, p.segments - 1), 0.0F);
  }
  for (int segment = 0; segment < walk.segment; ++segment) {
    const std::int64_t slot = segment_slot(p, walk, segment);
    add_slot<Shape>(state, p, walk, slot, p.segment_decays[slot]);
  }
}

}  // namespace attune::cuda
