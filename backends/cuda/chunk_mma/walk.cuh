// What one block works on: a range of value channels, and the chunks of one segment of a sequence.
#pragma once

#include "cuda/attention/views.cuh"
#include "tiles.cuh"

namespace attune::cuda {

/// Positions are tokens in the order of the walk, from the start of the sequence.
struct Walk {
  SequenceSpan span;
  std::int64_t sequence = 0;
  int head = 0;
  int segment = 0;
  int value_tile = 0;
  int first_value = 0;
  int chunk_tokens = 0;
  bool reverse = false;
  int length = 0;  // of the sequence
  int begin = 0;   // position of the segment
  int chunks = 0;  // of the segment

  __device__ int position(int chunk) const { return begin + chunk * chunk_tokens; }
  /// Where a position is from the start of the sequence in memory.
  __device__ int token(int position) const { return reverse ? length - 1 - position : position; }
  /// Tokens from a chunk's start to the sequence's end.
  __device__ int rows(int chunk) const { return length - position(chunk); }
};

/// The block's work in a grid of `segments` segments a sequence. Blocks are numbered value tile
/// first, as those of a head read the same q and k.
template <class Shape>
__device__ __forceinline__ Walk make_walk(const ChunkMmaParams& p, int segments) {
  Walk walk;
  unsigned rest = blockIdx.x;
  walk.value_tile = static_cast<int>(rest % p.value_tiles);
  walk.first_value = walk.value_tile * Shape::kValues;
  rest /= p.value_tiles;
  walk.segment = static_cast<int>(rest % segments);
  rest /= segments;
  walk.head = static_cast<int>(rest % p.heads);
  walk.sequence = rest / p.heads;
  walk.span = span_of(p.sequences, walk.sequence);
  walk.length = static_cast<int>(walk.span.length);
  walk.chunk_tokens = Shape::kChunk;
  walk.reverse = p.reverse;
  const int chunks = (walk.length + Shape::kChunk - 1) / Shape::kChunk;
  const int per_segment = (chunks + p.segments - 1) / p.segments;
  const int first = min(walk.segment * per_segment, chunks);
  walk.begin = first * Shape::kChunk;
  walk.chunks = min(per_segment, chunks - first);
  return walk;
}

/// The tokens of one head of a sequence.
template <class T>
struct Rows {
  T* first = nullptr;
  std::int64_t step = 0;  // in elements

  __device__ T* at(int token) const { return first + token * step; }
};

/// Those of one head of a tensor, from `channel` on.
template <class T, class View>
__device__ __forceinline__ Rows<T> rows_of(const View& view, const Walk& walk, int head,
                                           int channel) {
  return {static_cast<T*>(view.data) + row_offset(view, walk.span.batch, walk.span.begin, head) +
              channel,
          view.token};
}

/// Calls visit(element, k, v) for this thread's elements of the state that exist.
template <class Shape, class Visit>
__device__ __forceinline__ void for_each_element(State<Shape>& state, const ChunkMmaParams& p,
                                                 const Walk& walk, Visit&& visit) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int first_v = walk.first_value + warp * kValuesPerWarp + lane / 4;
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int k = 8 * j + lane % 4 * 2 + e % 2;
      const int v = first_v + e / 2 * 8;
      if (k < p.key_channels && v < p.value_channels) visit(state[j][e], k, v);
    }
  }
}

template <class Shape>
__device__ __forceinline__ void clear(State<Shape>& state) {
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 8; ++j) {
#pragma unroll
    for (float& element : state[j]) element = 0.0F;
  }
}

/// Sets `state` to the caller's initial one. Channels beyond K and V are zeros.
template <class Shape>
__device__ __forceinline__ void load_initial(State<Shape>& state, const ChunkMmaParams& p,
                                             const Walk& walk) {
  clear<Shape>(state);
  if (p.initial_state.data == nullptr) return;
  const ConstStateView& view = p.initial_state;
  const float* const from = view.data + walk.sequence * view.sequence + walk.head * view.head;
  for_each_element<Shape>(state, p, walk, [&](float& element, int k, int v) {
    element = from[k * view.k + v * view.v];
  });
}

template <class Shape>
__device__ __forceinline__ void store_final(State<Shape>& state, const ChunkMmaParams& p,
                                            const Walk& walk) {
  const StateView& view = p.final_state;
  if (view.data == nullptr) return;
  float* const to = view.data + walk.sequence * view.sequence + walk.head * view.head;
  for_each_element<Shape>(
      state, p, walk, [&](float element, int k, int v) { to[k * view.k + v * view.v] = element; });
}

}  // namespace attune::cuda
