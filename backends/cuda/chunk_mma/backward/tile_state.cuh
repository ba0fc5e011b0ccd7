// The tile of a state that a block walks, in shared memory, and where it comes from and goes.
#pragma once

#include "cuda/chunk_mma/backward/tile_walk.cuh"

namespace attune::cuda::chunk_mma::backward {

/// The tile, in shared memory, each warp's part apart: what tokens are on their way to leaves no
/// registers for it.
template <class Own>
class TileState {
 public:
  static constexpr int kLanes = Own::kColumns / 4;  // of a row's quads
  static constexpr int kRowsAtOnce = kWarpSize / kLanes;

  /// Two neighbouring elements of the warp's part, of a thread's Product.
  __device__ __forceinline__ float2& pair(int thread, int half, int n) {
    const int row = thread % kWarpSize / 4;
    float* const first = &parts_[thread / kWarpSize][row][thread % 4 * 2];
    const int column = (8 * (n % 4)) ^ swizzle(row);
    return *reinterpret_cast<float2*>(first + column + n / 4 * 32 + 8 * half * Own::kColumns);
  }
  /// The first row and column of a thread's quads in the warp's part. Lanes that lie side by side have a
  /// row: whole lines of the caller's memory.
  __device__ static int quad_row(int thread) { return thread % kWarpSize / kLanes; }
  __device__ static int quad_column(int thread) { return thread % kLanes * 4; }
  /// Calls visit(quad, rows) with those of them that are so many rows behind the first.
  template <class Visit>
  __device__ __forceinline__ void for_each_quad(int thread, Visit&& visit) {
    const int row = quad_row(thread);
    const int column = quad_column(thread) ^ swizzle(row);
#pragma unroll
    for (int rows = 0; rows < Own::kRows; rows += kRowsAtOnce) {
      float* const own = &parts_[thread / kWarpSize][row + rows][column ^ swizzle(rows)];
      visit(*reinterpret_cast<float4*>(own), rows);
    }
  }

 private:
  /// Pairs of four rows that follow each other lie in different banks.
  __device__ static int swizzle(int row) { return row % 4 * 8; }
  static_assert(kRowsAtOnce == 2 || kRowsAtOnce == 4);
  float parts_[Own::kWarps][Own::kRows][Own::kColumns];
};

/// The thread's number, but not to the compiler: addresses made of it would wait in registers from
/// chunk to chunk.
__device__ __forceinline__ int thread_again() {
  auto thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));
  __builtin_assume(thread >= 0);
  return thread;
}

/// Where the first of a thread's quads is in a head's state.
template <class Own>
struct FirstQuad {
  int key;
  int value;

  __device__ FirstQuad(const TileWalk& walk, int thread)
      : key(walk.first_key + Own::first_row(thread) + TileState<Own>::quad_row(thread)),
        value(walk.first_value + Own::first_tile_column(thread) +
              TileState<Own>::quad_column(thread)) {}
};

/// Keeps the warp's part of the tile in a state [K, state_columns] of the workspace, f32 or split.
template <bool kSplits, class Own>
__device__ __forceinline__ void keep(TileState<Own>& state, const BackwardParams& p,
                                     const TileWalk& walk, float* to) {
  const auto columns = static_cast<int>(state_columns(p.values.channels));
  const int thread = thread_again();
  const FirstQuad<Own> first(walk, thread);
  const int exist = first.value < columns ? p.keys.channels - first.key : 0;
  float* const first_row = to + first.key * columns;
  state.for_each_quad(thread, [&](const float4& quad, int rows) {
    if (rows >= exist) return;
    if constexpr (kSplits) {
      const SplitPair left = split(quad.x, quad.y);
      const SplitPair right = split(quad.z, quad.w);
      auto* const high = reinterpret_cast<SplitPart*>(first_row) + first.value + 2 * rows * columns;
      *reinterpret_cast<uint2*>(high) = {left.high, right.high};
      *reinterpret_cast<uint2*>(high + columns) = {left.low, right.low};
    } else {
      *reinterpret_cast<float4*>(first_row + first.value + rows * columns) = quad;
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

/// Calls visit(element, at) for the elements of the warp's part that exist, which are at that place of
/// the walk's head in a state of the caller's.
template <class Own, class View, class Visit>
__device__ __forceinline__ void for_each_element(TileState<Own>& state, const BackwardParams& p,
                                                 const TileWalk& walk, const View& view,
                                                 Visit&& visit) {
  const int thread = thread_again();
  const FirstQuad<Own> first(walk, thread);
  auto* const own = view.data + walk.head * view.head + first.key * view.k + first.value * view.v;
  const int columns = p.values.channels - first.value;
  const int exist = columns > 0 ? p.keys.channels - first.key : 0;
  state.for_each_quad(thread, [&](float4& quad, int rows) {
    float of[4] = {quad.x, quad.y, quad.z, quad.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (rows < exist && e < columns) visit(of[e], own + rows * view.k + e * view.v);
    }
    quad = {of[0], of[1], of[2], of[3]};
  });
}

template <class Own>
__device__ __forceinline__ void load_start(TileState<Own>& state, const BackwardParams& p,
                                           const TileWalk& walk, const StateSide& side) {
  state.for_each_quad(thread_again(), [](float4& quad, int) { quad = float4{}; });
  if (!walk.starts_sequence()) return;
  const ConstStateView from = state_of(side.initial, walk.place.sequence);
  if (from.data == nullptr) return;
  for_each_element(state, p, walk, from, [](float& element, const float* at) { element = *at; });
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
  for_each_element(state, p, walk, to, [](float element, float* at) { *at = element; });
}

}  // namespace attune::cuda::chunk_mma::backward
