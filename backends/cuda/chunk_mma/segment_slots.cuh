// Segments' states in the workspace. A block's registers go there as they are, since the block that
// reads them has the same shape.
#pragma once

#include "walk.cuh"

namespace attune::cuda {

/// The place of a segment's state in the workspace, counted in blocks.
__device__ __forceinline__ std::int64_t segment_slot(const ChunkMmaParams& p, const Walk& walk,
                                                     int segment) {
  const std::int64_t head = walk.sequence * p.heads + walk.head;
  return (head * p.segments + segment) * p.value_tiles + walk.value_tile;
}
/// This thread's float4 j of a slot; neighbours in a warp are neighbours there.
template <class Shape>
__device__ __forceinline__ float4* slot_element(const ChunkMmaParams& p, std::int64_t slot, int j) {
  return p.segment_states + (slot * (Shape::kKeys / 8) + j) * Shape::kThreads + threadIdx.x;
}

template <class Shape>
__device__ __forceinline__ void store_slot(const State<Shape>& state, const ChunkMmaParams& p,
                                           std::int64_t slot) {
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 8; ++j) {
    *slot_element<Shape>(p, slot, j) = {state[j][0], state[j][1], state[j][2], state[j][3]};
  }
}

/// state = decay * state + the slot's.
template <class Shape>
__device__ __forceinline__ void add_slot(State<Shape>& state, const ChunkMmaParams& p,
                                         std::int64_t slot, float decay) {
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 8; ++j) {
    const float4 added = *slot_element<Shape>(p, slot, j);
    state[j][0] = fmaf(state[j][0], decay, added.x);
    state[j][1] = fmaf(state[j][1], decay, added.y);
    state[j][2] = fmaf(state[j][2], decay, added.z);
    state[j][3] = fmaf(state[j][3], decay, added.w);
  }
}

/// The state at the start of the block's segment. The last slot has a copy of the initial state:
/// the last segment may write the final state over it while the first one still has to start.
template <class Shape>
__device__ __forceinline__ void load_segment_start(State<Shape>& state, const ChunkMmaParams& p,
                                                   const Walk& walk) {
  if (p.segments == 1) {
    load_initial<Shape>(state, p, walk);
    return;
  }
  clear<Shape>(state);
  if (walk.segment == 0) {
    if (p.initial_state.data == nullptr) return;
    add_slot<Shape>(state, p, segment_slot(p, walk, p.segments - 1), 0.0F);
  }
  for (int segment = 0; segment < walk.segment; ++segment) {
    const std::int64_t slot = segment_slot(p, walk, segment);
    add_slot<Shape>(state, p, slot, p.segment_decays[slot]);
  }
}

}  // namespace attune::cuda
