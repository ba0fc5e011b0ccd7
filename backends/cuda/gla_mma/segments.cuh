// Where the segments of a sequence start from: S_r = D_{r-1} S_{r-1} + L_{r-1}, where L is what a
// piece of a segment adds to an empty state and D what it decays, of every channel. A first launch
// finds L and D of the pieces of all segments but the last; the first one's L includes the caller's
// initial state.
#pragma once

#include "keeper.cuh"

namespace attune::cuda::gla_mma {

/// The walk of a piece, which is what walk.segment then says; `walk` is of its head.
template <class Shape>
__device__ __forceinline__ Walk walk_of_piece(const Params& p, Walk walk, int piece) {
  const int pieces = pieces_of_segment(p.segments);
  const int segment = piece / pieces;
  const int length = static_cast<int>(walk.span.length);
  const int chunks = (length + Shape::kChunk - 1) / Shape::kChunk;
  const int per_segment = (chunks + p.segments - 1) / p.segments;
  const int begin = segment * per_segment;
  const int cut = begin + per_segment * (p.segments - 1 - segment) / p.segments;
  const int first = min(pieces == 2 && piece % 2 == 1 ? cut : begin, chunks);
  const int end = pieces == 2 && piece % 2 == 0 ? cut : begin + per_segment;
  walk.segment = piece;
  walk.skipped = min(first * Shape::kChunk, length);
  walk.left = length - walk.skipped;
  walk.chunks = min(end, chunks) - first;
  return walk;
}

/// A slot of the block's head, counted over all heads; the last is the initial state's.
__device__ __forceinline__ std::int64_t state_slot(const Params& p, const Walk& walk, int slot) {
  return (walk.sequence * p.heads + walk.head) * slots_of(p.segments) + slot;
}
__device__ __forceinline__ std::int64_t initial_slot(const Params& p, const Walk& walk) {
  return state_slot(p, walk, slots_of(p.segments) - 1);
}
/// This lane's float4s of a tile in a slot: number j is at [j * kWarpSize].
template <class Shape>
__device__ __forceinline__ float4* slot_elements(const Params& p, const Walk& walk,
                                                 std::int64_t slot, int m) {
  const int tile = walk.value_tile * Shape::kValues + tile_channel<Shape>(m);
  const std::int64_t row = (slot * p.value_tiles * Shape::kValues + tile) / kValuesPerWarp;
  return p.segment_states + row * (Shape::kKeys / 8 * kWarpSize) + threadIdx.x % kWarpSize;
}

template <class Shape>
__device__ __forceinline__ void store_slot(const States<Shape>& states, const Params& p,
                                           const Walk& walk, std::int64_t slot) {
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    float4* const to = slot_elements<Shape>(p, walk, slot, m);
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
      const float(&x)[4] = states[m][j];
      to[j * kWarpSize] = {x[0], x[1], x[2], x[3]};
    }
  }
}

template <class Shape>
__device__ __forceinline__ void load_slot(States<Shape>& states, const Params& p, const Walk& walk,
                                          std::int64_t slot) {
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    const float4* const from = slot_elements<Shape>(p, walk, slot, m);
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
      const float4 x = from[j * kWarpSize];
      states[m][j][0] = x.x;
      states[m][j][1] = x.y;
      states[m][j][2] = x.z;
      states[m][j][3] = x.w;
    }
  }
}

/// states = D states + L of a slot.
template <class Shape>
__device__ __forceinline__ void walk_slot(States<Shape>& states, const Params& p, const Walk& walk,
                                          std::int64_t slot) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
  const float* const value_decays =
      p.segment_value_decays + (slot * p.value_tiles + walk.value_tile) * Shape::kValues;
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    const float4* const from = slot_elements<Shape>(p, walk, slot, m);
    float rows[2] = {1.0F, 1.0F};
    if constexpr (Shape::kValuesDecay) {
      for (int row = 0; row < 2; ++row) rows[row] = value_decays[lane_channel<Shape>(m, row)];
    }
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
      float2 columns{1.0F, 1.0F};
      if constexpr (Shape::kKeysDecay) {
        columns = *reinterpret_cast<const float2*>(p.segment_decays + slot * Shape::kKeys + 8 * j +
                                                   first);
      }
      const float4 added = from[j * kWarpSize];
      float(&x)[4] = states[m][j];
      x[0] = fmaf(x[0], columns.x * rows[0], added.x);
      x[1] = fmaf(x[1], columns.y * rows[0], added.y);
      x[2] = fmaf(x[2], columns.x * rows[1], added.z);
      x[3] = fmaf(x[3], columns.y * rows[1], added.w);
    }
  }
}

/// The caller's initial state. A tile's value channels are 64 from the next one's.
template <class Shape>
__device__ __forceinline__ void load_initial_states(States<Shape>& states, const Params& p,
                                                    const Walk& walk) {
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    Walk tile = walk;
    tile.first_value += tile_channel<Shape>(m) - own_channel();
    load_initial<Shape>(states[m], p, tile);
  }
}

/// The state at the start of the block's segment. The last slot has a copy of the initial state:
/// the last segment may write the final state over it while the first one still has to start.
template <class Shape>
__device__ __forceinline__ void load_start(States<Shape>& states, const Params& p,
                                           const Walk& walk) {
  if (p.segments == 1) return load_initial_states<Shape>(states, p, walk);
  if (walk.segment == 0) {
    return load_slot<Shape>(states, p, walk, initial_slot(p, walk));
  }
  load_slot<Shape>(states, p, walk, state_slot(p, walk, 0));
#pragma unroll 1
  for (int piece = 1; piece < walk.segment * pieces_of_segment(p.segments); ++piece) {
    walk_slot<Shape>(states, p, walk, state_slot(p, walk, piece));
  }
}

/// The true state of what the last reference made of it.
template <class Shape>
__device__ __forceinline__ void undo_reference(States<Shape>& states, const Shared<Shape>& shared) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    if constexpr (Shape::kValuesDecay) {
      scale_rows<Shape>(states[m], exp2_approx(shared.value_rests[lane_channel<Shape>(m, 0)]),
                        exp2_approx(shared.value_rests[lane_channel<Shape>(m, 1)]));
    }
    if constexpr (Shape::kKeysDecay) {
#pragma unroll
      for (int j = 0; j < Shape::kKeys / 8; ++j) {
        const auto rest = *reinterpret_cast<const float2*>(&shared.key_rests[8 * j + first]);
#pragma unroll
        for (int e = 0; e < 4; ++e) states[m][j][e] *= exp2_approx(e % 2 == 0 ? rest.x : rest.y);
      }
    }
  }
}

template <class Shape>
__device__ __forceinline__ void store_final_states(States<Shape>& states, const Params& p,
                                                   const Walk& walk) {
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    Walk tile = walk;
    tile.first_value += tile_channel<Shape>(m) - own_channel();
    store_final<Shape>(states[m], p, tile);
  }
}

}  // namespace attune::cuda::gla_mma
