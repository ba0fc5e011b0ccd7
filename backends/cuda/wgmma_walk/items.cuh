// What a block works on: one value tile of one head of a segment of a sequence at a time.
#pragma once

#include "cuda/chunks/next_walked.cuh"
#include "cuda/chunks/raw_index.cuh"
#include "cuda/wgmma_walk/walk.hpp"

namespace attune::cuda::chunk_wgmma {

/// The slot of sequence n, where there are any.
__device__ __forceinline__ RawIndex read_slot(const SlotsView& slots, int n) {
  if (slots.data == nullptr) return {};
  return read_index(slots.data, slots.is_i64, n * slots.sequence);
}

/// The state of sequence n, which has that slot where there are any; without data: it has none.
template <class View>
__device__ __forceinline__ View state_at(View states, int n, const RawIndex& slot) {
  if (states.data == nullptr) return states;
  const std::int64_t at = states.slots.data == nullptr ? n : slot.value();
  const bool exists = states.slots.data == nullptr || (at >= 0 && at < states.slots.count);
  states.data = exists ? states.data + at * states.sequence : nullptr;
  return states;
}

struct WalkItem {
  unsigned index = 0;
  int n = 0;
  int head = 0;
  int tile = 0;  // of value channels
  int segment = 0;
  int subsegment = 0;  // its first, counted through all segments
  int batch = 0;
  int begin = 0;     // of the sequence, in the tokens of its batch
  int length = 0;    // of the sequence
  int chunks = 0;    // of the sequence
  int first = 0;     // of the item, counted in the order of the walk
  int count = 0;     // chunks of the item; may be 0
  int segments = 0;  // of the sequence, where each is cut by its own length
  bool is_left_out = false;
  RawIndex first_slot = {};  // of a pool, where the state before it is

  /// First row, within the sequence, of the item's chunk `step` in the order of the walk. Chunks
  /// are aligned to the sequence's begin in both directions.
  __device__ __forceinline__ int row_of(int step, bool reverse) const {
    const int at = first + step;
    return (reverse ? chunks - 1 - at : at) * kChunkTokens;
  }
  /// Rows of the chunk that starts at `row` which belong to the sequence.
  __device__ __forceinline__ int rows_from(int row) const {
    return min(kChunkTokens, length - row);
  }
};

/// The value that lane 0 has, which the compiler then knows to be the same in the whole warp: code
/// that depends on it does not diverge, as wgmma demands.
__device__ __forceinline__ int warp_uniform(int value) { return __shfl_sync(kFullWarp, value, 0); }

__device__ __forceinline__ int value_tiles(const WalkParams& p, int tile_v) {
  return static_cast<int>((p.extents.V + tile_v - 1) / tile_v);
}

/// The segment of a part of the sequences, in which nothing is left to do where the sequence has no
/// such segment, or, in the first launch, where none starts behind it.
__device__ __forceinline__ void take_part(const WalkParams& p, bool is_first, unsigned part,
                                          WalkItem& item) {
  const PartPlace place = p.parts.places[part];
  item.n = place.sequence;
  item.segment = place.segment;
  item.segments = place.segments;
  item.is_left_out = place.segment + (is_first ? 1 : 0) >= place.segments;
}

/// Items of a range. The first to start wait for no other segment's state, and neighbours share
/// q and k.
template <class Shape>
__device__ __forceinline__ WalkItem item_at(const WalkParams& p, WalkRange range, unsigned index) {
  const auto next_digit = [&](std::int64_t base) {
    const auto radix = static_cast<unsigned>(base);
    const unsigned digit = index % radix;
    index /= radix;
    return static_cast<int>(digit);
  };
  WalkItem item;
  item.index = index;
  item.tile = next_digit(value_tiles(p, Shape::kTileV));
  item.head = next_digit(p.extents.heads);
  int subsegment = 0;
  if constexpr (Shape::kIsInParts) {
    subsegment = next_digit(range.subsegments);
    take_part(p, range.is_first, index, item);
  } else {
    item.n = next_digit(p.extents.sequences);
    if (Shape::kIsPool) item.first_slot = read_slot(p.initial.slots, item.n);  // beside the bounds
    subsegment = next_digit(range.subsegments);
    item.segment = static_cast<int>(index);
  }
  item.subsegment = item.segment * p.subsegments + subsegment;
  const SequenceSpan span = span_of(p.sequences, item.n);
  if constexpr (!Shape::kIsInParts) item.is_left_out = span.is_left_out;
  item.batch = static_cast<int>(span.batch);
  item.begin = static_cast<int>(span.begin);
  item.length = static_cast<int>(span.length);
  item.chunks = (item.length + kChunkTokens - 1) / kChunkTokens;
  const int segments = Shape::kIsInParts ? max(item.segments, 1) : p.segments;
  const int per_segment = (item.chunks + segments - 1) / segments;
  const int per_subsegment = (per_segment + range.subsegments - 1) / range.subsegments;
  const int begin = subsegment * per_subsegment;  // in the segment
  item.first = min(item.segment * per_segment + min(begin, per_segment), item.chunks);
  item.count =
      warp_uniform(min(max(min(per_subsegment, per_segment - begin), 0), item.chunks - item.first));
  return item;
}

/// Calls visit(item) for the block's items: every gridDim.x-th of the range's, or one, where packed
/// sequences are cut by their own lengths. There are fewer than 2^31, as there are tokens of a batch
/// and batches.
template <class Shape, class Visit>
__device__ __forceinline__ void for_each_item(const WalkParams& p, WalkRange range, Visit&& visit) {
  if constexpr (Shape::kIsInParts) {
    const WalkItem item = item_at<Shape>(p, range, blockIdx.x);
    if (!item.is_left_out) visit(item);
    return;
  }
  const int tiles = value_tiles(p, Shape::kTileV);
  const auto items = static_cast<unsigned>(p.extents.sequences * p.extents.heads) *
                     static_cast<unsigned>(tiles * range.segments * range.subsegments);
  for (unsigned i = blockIdx.x; i < items; i += gridDim.x) {
    if constexpr (Shape::kBatch == WalkBatch::kMixed) {
      const auto of_sequence = static_cast<unsigned>(tiles * p.extents.heads);
      const auto sequences = static_cast<unsigned>(p.extents.sequences);
      i = next_walked(p.sequences, i, gridDim.x, items,
                      [&](unsigned at) { return at / of_sequence % sequences; });
      if (i >= items) return;
    }
    const WalkItem item = item_at<Shape>(p, range, i);
    if (!item.is_left_out) visit(item);
  }
}

/// Index of a head of a sequence among all of them.
__device__ __forceinline__ std::int64_t state_index(const WalkParams& p, const WalkItem& item) {
  return std::int64_t{item.n} * p.extents.heads + item.head;
}

/// How many sums of segments there are of a walk of a head, and which of them is the sequence's
/// first: each has its own, or those of all sequences follow each other.
template <class Shape>
struct SumsOfWalk {
  std::int64_t walk;  // among those that have such sums
  std::int64_t count;
  std::int64_t first;

  __device__ __forceinline__ SumsOfWalk(const WalkParams& p, const WalkItem& item) {
    if constexpr (Shape::kIsInParts) {
      walk = item.head;
      count = p.parts.sums(p.sequences.tokens) * p.subsegments;
      const auto begin = static_cast<unsigned>(item.begin);
      first = std::int64_t{__umulhi(begin, p.sums_of_tokens)} * p.subsegments;
    } else {
      walk = state_index(p, item);
      count = std::int64_t{p.segments} * p.subsegments;
      first = 0;
    }
  }
};

/// Where the total decays of a sequence's subsegments are.
template <class Shape>
__device__ __forceinline__ float* scratch_decays(const WalkParams& p, const WalkItem& item) {
  const SumsOfWalk<Shape> sums(p, item);
  return p.scratch.decays + sums.walk * sums.count + sums.first;
}

/// The last of a sequence's subsegments, whose sum nobody starts from.
template <class Shape>
__device__ __forceinline__ int last_subsegment(const WalkParams& p, const WalkItem& item) {
  const int segments = Shape::kIsInParts ? item.segments : p.segments;
  return segments * p.subsegments - 1;
}

}  // namespace attune::cuda::chunk_wgmma
