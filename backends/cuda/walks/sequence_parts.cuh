// Device code of sequence_parts.hpp.
#pragma once

#include "cuda/chunks/views.cuh"
#include "cuda/walks/sequence_parts.hpp"

namespace attune::cuda {

/// The number of a sequence's first part. Those of different sequences do not overlap, unless the
/// sequences do.
__device__ __forceinline__ std::int64_t first_part(const SequencesView& sequences, std::int64_t n,
                                                   const SequenceSpan& span,
                                                   std::int64_t tokens_per_part) {
  return sequences.bounds != nullptr ? span.begin / tokens_per_part + n
                                     : n * (sequences.tokens / tokens_per_part + 1);
}

/// The last of `count` sequences whose parts start at or before number `part`.
__device__ __forceinline__ std::int64_t sequence_of_part(const SequencesView& sequences,
                                                         std::int64_t count, std::int64_t part,
                                                         std::int64_t tokens_per_part) {
  if (sequences.bounds == nullptr) return part / (sequences.tokens / tokens_per_part + 1);
  std::int64_t low = 0;
  std::int64_t high = count - 1;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    const bool starts_later =
        first_part(sequences, middle, span_of(sequences, middle), tokens_per_part) > part;
    (starts_later ? high : low) = starts_later ? middle - 1 : middle;
  }
  return low;
}

/// Into how many segments a sequence of so many tokens goes, in parts of so many.
__device__ __forceinline__ int segments_of_length(std::int64_t length, std::int64_t part_tokens) {
  constexpr std::int64_t kMost = 32;  // each starts from what all before it add
  return static_cast<int>(min(max(length / part_tokens, std::int64_t{1}), kMost));
}

}  // namespace attune::cuda
