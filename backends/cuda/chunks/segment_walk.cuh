// What one block works on: a range of value channels, and the chunks of one segment of a sequence.
#pragma once

#include "cuda/chunks/mma_tile.cuh"
#include "cuda/chunks/views.cuh"

namespace attune::cuda {

/// A log decay in base 2 below this one is raised to it: 2^kReset is 0 in fp32, so an exact reset
/// (-inf) stays one, differences of sums never meet inf - inf, and sums stay small enough that what
/// follows a reset keeps its precision.
inline constexpr float kReset = -192.0F;  // well below fp32's least exponent, -126

/// Positions are tokens in the order of the walk, from the start of the segment.
struct Walk {
  SequenceSpan span;
  std::int64_t sequence = 0;
  int head = 0;
  int segment = 0;
  int segments = 1;  // of the sequence
  int value_tile = 0;
  int first_value = 0;
  int slice = 0;  // of key channels, where these are more than a block has
  int chunk_tokens = 0;
  bool reverse = false;
  int skipped = 0;  // tokens before the segment
  int left = 0;     // tokens from its start to the sequence's end
  int chunks = 0;   // of the segment

  __device__ int position(int chunk) const { return chunk * chunk_tokens; }
  /// Where a position lies in memory, in tokens from position 0.
  __device__ int token(int position) const { return reverse ? -position : position; }
  /// Tokens from a chunk's start to the sequence's end.
  __device__ int rows(int chunk) const { return left - position(chunk); }
  /// Where position 0 lies, in tokens from the start of the batch.
  __device__ std::int64_t first_token() const {
    return span.begin + (reverse ? span.length - 1 - skipped : skipped);
  }
};

/// Block `block` of [sequences, heads, segments].
__device__ __forceinline__ void take_segment(Walk& walk, const SegmentWalkParams& p, unsigned block,
                                             int segments) {
  walk.segment = static_cast<int>(block % segments);
  block /= segments;
  walk.head = static_cast<int>(block % p.heads);
  walk.sequence = block / p.heads;
  walk.span = span_of(p.sequences, walk.sequence);
  walk.segments = p.segments;
}
/// Block `block` of [parts, heads].
__device__ __forceinline__ void take_part(Walk& walk, const SegmentWalkParams& p, unsigned block) {
  walk.head = static_cast<int>(block % p.heads);
  const PartPlace place = p.parts.places[block / p.heads];
  walk.sequence = place.sequence;
  walk.segment = place.segment;
  walk.segments = place.segments;
  walk.span = span_of(p.sequences, walk.sequence);
}

/// The block's work in a grid of `segments` segments a sequence, or of parts, if kMayBeParts.
/// Blocks are numbered value tile first, as those of a head read the same q and k.
template <class Shape, bool kMayBeParts = true>
__device__ __forceinline__ Walk make_walk(const SegmentWalkParams& p, int segments) {
  Walk walk;
  const unsigned block = block_index();
  walk.value_tile = static_cast<int>(block % p.value_tiles);
  walk.first_value = walk.value_tile * Shape::kValues;
  if (kMayBeParts && p.parts.tokens > 0) {
    take_part(walk, p, block / p.value_tiles);
  } else {
    take_segment(walk, p, block / p.value_tiles, segments);
  }
  const int length = static_cast<int>(walk.span.length);
  walk.chunk_tokens = Shape::kChunk;
  walk.reverse = p.reverse;
  const int chunks = (length + Shape::kChunk - 1) / Shape::kChunk;
  const int per_segment = (chunks + walk.segments - 1) / walk.segments;
  const int first = min(walk.segment * per_segment, chunks);
  walk.skipped = min(first * Shape::kChunk, length);
  walk.left = length - walk.skipped;
  walk.chunks = min(per_segment, chunks - first);
  return walk;
}

/// Whether a block's part is a segment that its sequence has: not all numbers are in use.
__device__ __forceinline__ bool has_segment(const Walk& walk) {
  return walk.segment < walk.segments;
}
/// Whether another one starts behind it.
__device__ __forceinline__ bool has_next_segment(const Walk& walk) {
  return walk.segment + 1 < walk.segments;
}

/// Number of what a segment of the block's head adds to the state, counted over all heads: without
/// a branch, as states fill the registers where it is needed.
__device__ __forceinline__ std::int64_t sum_index(const SegmentWalkParams& p, const Walk& walk,
                                                  int segment) {
  const auto begin = static_cast<unsigned>(walk.span.begin);
  return walk.slice * p.sums.slice + walk.sequence * p.sums.sequence + walk.head * p.sums.head +
         __umulhi(begin, p.sums.of_tokens) + segment;
}

/// The walked tokens of one head.
template <class T>
struct Rows {
  T* first = nullptr;     // position 0
  std::int64_t step = 0;  // in elements

  __device__ T* at(int token) const { return first + token * step; }
};

/// Those of one head of a tensor, from `channel` on.
template <class T, class View>
__device__ __forceinline__ Rows<T> rows_of(const View& view, const Walk& walk, int head,
                                           int channel) {
  return {static_cast<T*>(view.data) + row_offset(view, walk.span.batch, walk.first_token(), head) +
              channel,
          view.token};
}

/// Calls visit(element, offset, j, e) for this thread's elements of the state that exist in one
/// [H, K, V] of the view's strides. Offsets are sums, not products: the registers are full already.
template <class Shape, class View, class Visit>
__device__ __forceinline__ void for_each_element(State<Shape>& state, const SegmentWalkParams& p,
                                                 const Walk& walk, const View& view,
                                                 Visit&& visit) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int k = walk.slice * Shape::kKeys + lane % 4 * 2 + e % 2;
    const int v = walk.first_value + own_channel() + lane / 4 + e / 2 * 8;
    const int keys = v < p.value_channels ? p.key_channels - k : 0;
    std::int64_t offset = walk.head * view.head + k * view.k + v * view.v;
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
      if (8 * j < keys) visit(state[j][e], offset, j, e);
      offset += 8 * view.k;
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
__device__ __forceinline__ void load_initial(State<Shape>& state, const SegmentWalkParams& p,
                                             const Walk& walk) {
  clear<Shape>(state);
  const ConstStateView from = state_of(p.initial_state, walk.sequence);
  if (from.data == nullptr) return;
  for_each_element<Shape>(state, p, walk, from, [&](float& element, std::int64_t at, int, int) {
    element = from.data[at];
  });
}

/// Where the state behind a chunk of a segment's walk is kept as a snapshot; without data: nowhere.
template <class Shape>
__device__ __forceinline__ StateView snapshot_behind(const SegmentWalkParams& p, const Walk& walk,
                                                     int chunk) {
  const int tokens = (chunk + 1) * Shape::kChunk;
  if (tokens > walk.left) return {};
  return snapshot_of(p.snapshots, walk.sequence, walk.skipped + tokens);
}

/// Where the state behind a segment goes as what the sequence ends with; without data: nowhere.
__device__ __forceinline__ StateView final_behind(const SegmentWalkParams& p, const Walk& walk) {
  return walk.segment == walk.segments - 1 ? state_of(p.final_state, walk.sequence) : StateView{};
}

/// Stores the state in one of [H, K, V], where there is one.
template <class Shape>
__device__ __forceinline__ void store_state(State<Shape>& state, const SegmentWalkParams& p,
                                            const Walk& walk, const StateView& to) {
  if (to.data == nullptr) return;
  for_each_element<Shape>(state, p, walk, to,
                          [&](float element, std::int64_t at, int, int) { to.data[at] = element; });
}

}  // namespace attune::cuda
