// The tile of a state that a block walks, in shared memory, and where it comes from and goes.
#pragma once

#include "cuda/chunk_mma/backward/tile_walk.cuh"

namespace attune::cuda::chunk_mma::backward {

/// The tile, in shared memory, each warp's part apart: what tokens are on their way to leaves no
/// registers for it.
template <class Own>
class TileState {
 public:
  /// Two neighbouring elements of the warp's part, of a thread's Product of a block of rows.
  __device__ float2& pair(int thread, int half, int n) {
    const int row = thread % kWarpSize / 4;
    const int column = 8 * n + thread % 4 * 2;
    float* const first = &parts_[thread / kWarpSize][row][place(row, column)];
    return *reinterpret_cast<float2*>(first + 8 * half * Own::kColumns);
  }
  /// Calls visit(quad, row, column) with four elements of a row of the warp's part: some lanes that
  /// lie side by side have a row, whole lines of the caller's memory.
  template <class Visit>
  __device__ __forceinline__ void for_each_quad(int thread, Visit&& visit) {
    constexpr int kLanes = Own::kColumns / 4;
    const int row = thread % kWarpSize / kLanes;
    const int column = thread % kLanes * 4;
#pragma unroll
    for (int first = 0; first < Own::kRows; first += kWarpSize / kLanes) {
      float* const own = &parts_[thread / kWarpSize][row + first][place(row + first, column)];
      visit(*reinterpret_cast<float4*>(own), row + first, column);
    }
  }

 private:
  /// Pairs of four rows that follow each other lie in different banks.
  __device__ static int place(int row, int column) { return column ^ (row % 4 * 8); }
  static_assert(Own::kColumns % kWarpSize == 0);
  float parts_[Own::kWarps][Own::kRows][Own::kColumns];
};

/// The thread's number, but not to the compiler: addresses made of it would wait in registers from
/// chunk to chunk.
__device__ __forceinline__ int thread_again() {
  auto thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));
  return thread;
}

/// Keeps the warp's part of the tile in a state [K, state_columns] of the workspace, f32 or split.
template <bool kSplits, class Own>
__device__ __forceinline__ void keep(TileState<Own>& state, const BackwardParams& p,
                                     const TileWalk& walk, float* to) {
  const auto columns = static_cast<int>(state_columns(p.values.channels));
  const int thread = thread_again();
  const int first_key = walk.first_key + Own::first_row(thread);
  const int first_value = walk.first_value + Own::first_tile_column(thread);
  state.for_each_quad(thread, [&](const float4& quad, int row, int column) {
    const int key = first_key + row;
    const int value = first_value + column;
    if (key >= p.keys.channels || value >= columns) return;
    float* const own_row = to + key * columns;
    if constexpr (kSplits) {
      const SplitPair left = split(quad.x, quad.y);
      const SplitPair right = split(quad.z, quad.w);
      auto* const high = reinterpret_cast<SplitPart*>(own_row) + value;
      *reinterpret_cast<uint2*>(high) = {left.high, right.high};
      *reinterpret_cast<uint2*>(high + columns) = {left.low, right.low};
    } else {
      *reinterpret_cast<float4*>(own_row + value) = quad;
    }
  });
}

/// Keeps it as the state of a chunk.
template <class Own>
__device__ __forceinline__ void keep_state(TileState<Own>& state, const BackwardParams& p,
                                           const TileWalk& walk, float* to) {
  if (p.splits_states) {
    keep<true>(state, p, walk, to);
  } else {
    keep<false>(state, p, walk, to);
  }
}

/// Calls visit(element, key, value) for the elements of the warp's part that exist; key and value are
/// channels of the head.
template <class Own, class Visit>
__device__ __forceinline__ void for_each_element(TileState<Own>& state, const BackwardParams& p,
                                                 const TileWalk& walk, Visit&& visit) {
  const int thread = thread_again();
  state.for_each_quad(thread, [&](float4& quad, int row, int column) {
    const int key = walk.first_key + Own::first_row(thread) + row;
    const int value = walk.first_value + Own::first_tile_column(thread) + column;
    float of[4] = {quad.x, quad.y, quad.z, quad.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (key < p.keys.channels && value + e < p.values.channels) visit(of[e], key, value + e);
    }
    quad = {of[0], of[1], of[2], of[3]};
  });
}

template <class Own>
__device__ __forceinline__ void load_start(TileState<Own>& state, const BackwardParams& p,
                                           const TileWalk& walk, const StateSide& side) {
  state.for_each_quad(thread_again(), [](float4& quad, int, int) { quad = float4{}; });
  if (!walk.starts_sequence()) return;
  const ConstStateView from = state_of(side.initial, walk.place.sequence);
  if (from.data == nullptr) return;
  for_each_element(state, p, walk, [&](float& element, int key, int value) {
    element = from.data[walk.head * from.head + key * from.k + value * from.v];
  });
}

/// Whether other segments need what the walk makes of the state.
__device__ __forceinline__ bool leaves_segment(const BackwardParams& p, const TileWalk& walk) {
  return p.is_cut && !walk.is_of_whole_sequence();
}
/// Whether there is anyone for the state where the walk ends.
__device__ __forceinline__ bool wants_end(const BackwardParams& p, const TileWalk& walk,
                                          const StateSide& side) {
  return leaves_segment(p, walk) || state_of(side.final, walk.place.sequence).data != nullptr;
}

/// Where the walk ends: the segment's state for the others, or the sequence's for the caller.
template <class Own>
__device__ __forceinline__ void store_end(TileState<Own>& state, const BackwardParams& p,
                                          const TileWalk& walk, const StateSide& side) {
  const std::int64_t size = p.keys.channels * state_columns(p.values.channels);
  if (leaves_segment(p, walk)) {
    keep<false>(state, p, walk, side.segment_states + (walk.segment * p.heads + walk.head) * size);
    return;
  }
  const StateView to = state_of(side.final, walk.place.sequence);
  if (to.data == nullptr) return;
  for_each_element(state, p, walk, [&](float element, int key, int value) {
    to.data[walk.head * to.head + key * to.k + value * to.v] = element;
  });
}

}  // namespace attune::cuda::chunk_mma::backward
