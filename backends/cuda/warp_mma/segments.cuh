// Which tokens of which head a warp walks.
//
// Segments are numbered over all sequences: those of a batch one after the other, and of packed
// sequences so that a look at cu_seqlens finds them: one that begins at token b has numbers from
// b / tokens + n on, of which its last ones may be without use. Heads of a segment are neighbours, as
// their rows are.
#pragma once

#include "cuda/walks/sequence_parts.cuh"
#include "cuda/warp_mma/state.cuh"

namespace attune::cuda::warp_mma {

struct Segment {
  SequenceSpan span;
  std::int64_t sequence = 0;
  std::int64_t part = 0;  // its number
  int head = 0;
  int number = 0;       // of the sequence's
  int of_sequence = 0;  // segments; none where it has no such one
  int first = 0;        // tokens before it
  int tokens = 0;

  __device__ bool exists() const { return number < of_sequence; }
  __device__ bool is_first() const { return number == 0; }
  __device__ bool is_last() const { return number == of_sequence - 1; }
  /// The place of what it adds to the state, or of another segment's of its head.
  __device__ std::int64_t sum_index(const Params& p, int of = 0) const {
    return (part - number + of) * p.heads + head;
  }
};

__device__ __forceinline__ int segments_of(const Params& p, const SequenceSpan& span) {
  if (p.segment_tokens == 0) return 1;
  const auto length = static_cast<int>(span.length);
  return max((length + p.segment_tokens - 1) / p.segment_tokens, 1);
}

/// The number of a sequence's first segment.
__device__ __forceinline__ std::int64_t first_segment(const Params& p, std::int64_t n,
                                                      const SequenceSpan& span) {
  if (p.segment_tokens == 0) return n;
  if (p.sequences.bounds != nullptr) return first_part(p.sequences, n, span, p.segment_tokens);
  return n * segments_of(p, span);
}

/// The last packed sequence whose numbers start at or before one: a warp looks at 32 at once.
__device__ __forceinline__ std::int64_t sequence_of(const Params& p, std::int64_t part,
                                                    const Lane& lane) {
  std::int64_t low = 0;
  std::int64_t count = p.sequence_count;
  while (count > 1) {
    const std::int64_t step = (count + kWarpSize - 1) / kWarpSize;
    const std::int64_t at = low + min(lane.number * step, count);
    const bool starts =
        lane.number * step < count && first_segment(p, at, span_of(p.sequences, at)) <= part;
    const int before = __popc(__ballot_sync(kFullWarp, starts));
    const std::int64_t chosen = max(before - 1, 0) * step;
    low += chosen;
    count = min(step, count - chosen);
  }
  return low;
}

/// Segment `number` of all [parts, heads].
__device__ __forceinline__ Segment segment_at(const Params& p, std::int64_t number,
                                              const Lane& lane) {
  Segment segment;
  segment.part = quotient(number, p.heads);
  segment.head = static_cast<int>(number - segment.part * p.heads);
  if (segment.part >= p.parts) return segment;
  if (p.segment_tokens == 0) {
    segment.sequence = segment.part;
  } else if (p.sequences.bounds == nullptr) {
    segment.sequence = quotient(segment.part, segments_of(p, span_of(p.sequences, 0)));
  } else {
    segment.sequence = sequence_of(p, segment.part, lane);
  }
  segment.span = span_of(p.sequences, segment.sequence);
  const std::int64_t before = segment.part - first_segment(p, segment.sequence, segment.span);
  if (segment.span.is_left_out || before < 0) return segment;
  segment.number = static_cast<int>(before);
  segment.of_sequence = segments_of(p, segment.span);
  segment.first = segment.number * p.segment_tokens;
  const auto length = static_cast<int>(segment.span.length);
  const int left = max(length - segment.first, 0);
  segment.tokens = p.segment_tokens == 0 ? left : min(left, p.segment_tokens);
  return segment;
}

}  // namespace attune::cuda::warp_mma
