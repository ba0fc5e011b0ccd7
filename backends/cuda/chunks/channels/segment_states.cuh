// Where the segments of a sequence start from: S_r = D_{r-1} S_{r-1} + L_{r-1}, where L is what a
// subsegment adds to an empty state and D its total decay, of every channel. A first launch finds L
// and D of the subsegments of all segments but the last; the first one's L includes the caller's
// initial state, unless summaries are wanted. Of many segments a launch of its own then makes S_r
// (segment_starts.hpp), so that a walk need not pass all before its own.
//
// Where starts are late (late_starts.hpp) there is no first launch: L and D are what the walk itself leaves.
#pragma once

#include "cuda/chunks/channels/state.cuh"

namespace attune::cuda::channels {

/// The walk of a subsegment, which is what walk.segment then says; `walk` is of its head.
template <class Shape>
__device__ __forceinline__ Walk walk_of_subsegment(const Params& p, Walk walk, int subsegment) {
  const int subsegments = p.subsegments;
  const int segment = subsegment / subsegments;
  const int length = static_cast<int>(walk.span.length);
  const int chunks = (length + Shape::kChunk - 1) / Shape::kChunk;
  const int per_segment = (chunks + walk.segments - 1) / walk.segments;
  const int begin = segment * per_segment;
  const int cut = begin + per_segment * (walk.segments - 1 - segment) / walk.segments;
  const int first = min(subsegments == 2 && subsegment % 2 == 1 ? cut : begin, chunks);
  const int end = subsegments == 2 && subsegment % 2 == 0 ? cut : begin + per_segment;
  walk.segment = subsegment;
  walk.skipped = min(first * Shape::kChunk, length);
  walk.left = length - walk.skipped;
  walk.chunks = min(end, chunks) - first;
  return walk;
}

/// Number of the saved initial state: behind those of segments that others start from.
__device__ __forceinline__ std::int64_t saved_initial_index(const Params& p, const Walk& walk) {
  return sum_index(p, walk, p.subsegments * (walk.segments - 1));
}
/// This lane's float4s of a tile of a saved state: number j is at [j * kWarpSize].
template <class Shape>
__device__ __forceinline__ float4* saved_elements(const Params& p, const Walk& walk,
                                                  std::int64_t saved, int m) {
  const int tile = walk.value_tile * Shape::kValues + tile_channel<Shape>(m);
  const std::int64_t row = (saved * p.value_tiles * Shape::kValues + tile) / kValuesPerWarp;
  return p.segment_states + row * (Shape::kKeys / 8 * kWarpSize) + threadIdx.x % kWarpSize;
}

template <class Shape>
__device__ __forceinline__ void save_states(const States<Shape>& states, const Params& p,
                                            const Walk& walk, std::int64_t saved) {
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    float4* const to = saved_elements<Shape>(p, walk, saved, m);
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
      const float(&x)[4] = states[m][j];
      to[j * kWarpSize] = {x[0], x[1], x[2], x[3]};
    }
  }
}

template <class Shape>
__device__ __forceinline__ void load_saved(States<Shape>& states, const Params& p, const Walk& walk,
                                           std::int64_t saved) {
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    const float4* const from = saved_elements<Shape>(p, walk, saved, m);
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

template <class Shape>
__device__ __forceinline__ void add_saved(States<Shape>& states, const Params& p, const Walk& walk,
                                          std::int64_t saved) {
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    const float4* const from = saved_elements<Shape>(p, walk, saved, m);
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
      const float4 added = from[j * kWarpSize];
      states[m][j][0] += added.x;
      states[m][j][1] += added.y;
      states[m][j][2] += added.z;
      states[m][j][3] += added.w;
    }
  }
}

/// states = D states + L of a subsegment.
template <class Shape>
__device__ __forceinline__ void pass_subsegment(States<Shape>& states, const Params& p,
                                                const Walk& walk, std::int64_t saved) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
  const float* const value_decays =
      p.segment_value_decays + (saved * p.value_tiles + walk.value_tile) * Shape::kValues;
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    const float4* const from = saved_elements<Shape>(p, walk, saved, m);
    float rows[2] = {1.0F, 1.0F};
    if constexpr (Shape::kValuesDecay) {
      for (int row = 0; row < 2; ++row) rows[row] = value_decays[lane_channel<Shape>(m, row)];
    }
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
      float2 columns{1.0F, 1.0F};
      if constexpr (Shape::kKeysDecay) {
        columns = *reinterpret_cast<const float2*>(p.segment_decays + saved * Shape::kKeys + 8 * j +
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

/// The caller's initial state.
template <class Shape>
__device__ __forceinline__ void load_initial_states(States<Shape>& states, const Params& p,
                                                    const Walk& walk) {
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    load_initial<Shape>(states[m], p, walk_of_tile<Shape>(walk, m));
  }
}

/// The state at the start of the block's segment. A copy of the initial state is saved:
/// the last segment may write the final state over it while the first one still has to start.
template <class Shape>
__device__ __forceinline__ void load_start(States<Shape>& states, const Params& p,
                                           const Walk& walk) {
  const bool from_initial = walk.segments == 1 || p.sums_all();
  if (from_initial) {
    load_initial_states<Shape>(states, p, walk);
  } else if (walk.segment == 0) {
    return load_saved<Shape>(states, p, walk, saved_initial_index(p, walk));
  } else if (p.has_starts) {
    return load_saved<Shape>(states, p, walk, sum_index(p, walk, walk.segment - 1));
  } else {
    load_saved<Shape>(states, p, walk, sum_index(p, walk, 0));
  }
  const int subsegments = walk.segment * p.subsegments;
#pragma unroll 1
  for (int subsegment = from_initial ? 0 : 1; subsegment < subsegments; ++subsegment) {
    pass_subsegment<Shape>(states, p, walk, sum_index(p, walk, subsegment));
  }
}

}  // namespace attune::cuda::channels
