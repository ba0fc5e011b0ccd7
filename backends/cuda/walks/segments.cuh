// Where the segments of segments.hpp lie, and which states their walks start from and end with.
#pragma once

#include "cuda/walks/sequence_parts.cuh"
#include "cuda/walks/walk.hpp"

namespace attune::cuda {

/// Steps [first, end) of a sequence's walk. A sequence that is not cut is one segment.
struct SequenceSegment {
  std::int64_t sequence = 0;
  SequenceSpan span;
  std::int64_t part = 0;       // its number among those of all sequences
  std::int64_t last_part = 0;  // that of the sequence's last segment
  std::int64_t first = 0;
  std::int64_t end = 0;
  bool is_last = true;
  __device__ bool is_first() const { return first == 0; }
};

/// Steps of a sequence's walk.
__device__ __forceinline__ std::int64_t step_count(const WalkParams& p, std::int64_t length) {
  return length + (p.decays_last && length > 0 ? 1 : 0);
}

/// Segments of a sequence that is cut: one, or more without an empty one among them.
__device__ __forceinline__ std::int64_t segment_count(const WalkParams& p, std::int64_t length) {
  const std::int64_t tokens = p.segments.tokens;
  if (p.segments.counts_from_end) return length / tokens + 1;
  return max(ceil_div(step_count(p, length), tokens), std::int64_t{1});
}

__device__ __forceinline__ std::int64_t segment_begin(const WalkSegments& segments,
                                                      std::int64_t length, std::int64_t number) {
  if (number == 0) return 0;
  if (!segments.counts_from_end) return number * segments.tokens;
  return length % segments.tokens + 1 + (number - 1) * segments.tokens;
}

/// Whether the state behind a segment is made of its own sum.
__device__ __forceinline__ bool has_sum(const WalkSegments& segments, bool is_last) {
  return !is_last || segments.final_only;
}

/// Finds a segment by its part, or a sequence that is not cut by its number; false where there is
/// none.
__device__ inline bool find_segment(const WalkParams& p, std::int64_t part,
                                    SequenceSegment& segment) {
  const std::int64_t tokens = p.segments.tokens;
  if (tokens == 0) {
    if (part >= p.sequence_count) return false;
    segment.sequence = part;
    segment.span = span_of(p.sequences, part);
    if (segment.span.is_left_out) return false;
    segment.end = step_count(p, segment.span.length);
    return true;
  }
  if (part >= p.parts()) return false;
  segment.sequence = sequence_of_part(p.sequences, p.sequence_count, part, tokens);
  segment.span = span_of(p.sequences, segment.sequence);
  if (segment.span.is_left_out) return false;
  const std::int64_t number =
      part - first_part(p.sequences, segment.sequence, segment.span, tokens);
  const std::int64_t length = segment.span.length;
  const std::int64_t count = segment_count(p, length);
  if (number < 0 || number >= count) return false;
  segment.part = part;
  segment.last_part = part - number + count - 1;
  segment.first = segment_begin(p.segments, length, number);
  segment.is_last = number + 1 == count;
  segment.end =
      segment.is_last ? step_count(p, length) : segment_begin(p.segments, length, number + 1);
  return true;
}

/// The states of a part, for View a ConstStateView or a StateView.
template <class View>
__device__ __forceinline__ View part_states(const WalkParams& p, std::int64_t part) {
  const std::int64_t tile = p.rows * p.columns;
  return state_of(View{p.segments.states, p.heads * tile, tile, p.columns, 1, {}}, part);
}

/// The state that a segment's walk starts from; without data: zeros. The last segment may write the
/// final state over the initial one while the first still has to start: the fold leaves a copy in
/// the place of the last one, which adds to no state.
__device__ __forceinline__ ConstStateView start_of(const WalkParams& p,
                                                   const SequenceSegment& segment) {
  if (segment.is_first()) {
    const bool is_copied = p.ends_where_it_starts() && !p.segments.sums_only && !segment.is_last;
    return is_copied ? part_states<ConstStateView>(p, segment.last_part)
                     : state_of(p.initial, segment.sequence);
  }
  if (p.segments.sums_only) return {};
  return part_states<ConstStateView>(p, segment.part - 1);
}

/// Where the state behind a segment goes; without data: nowhere.
__device__ __forceinline__ StateView end_of(const WalkParams& p, const SequenceSegment& segment) {
  if (p.segments.sums_only) return part_states<StateView>(p, segment.part);
  return segment.is_last ? state_of(p.final, segment.sequence) : StateView{};
}

}  // namespace attune::cuda
