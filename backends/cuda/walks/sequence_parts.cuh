// Device code of sequence_parts.hpp.
#pragma once

#include "cuda/chunks/segment_walk.hpp"
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

/// From the L2 cache: of the call before there may be another one in L1.
__device__ __forceinline__ PartPlace place_at(const PartPlace* places, unsigned number) {
  const int4 place = __ldcg(reinterpret_cast<const int4*>(places + number));
  return {place.x, place.y, place.z};
}
__device__ __forceinline__ PartPlace place_of_part(const SequenceParts& parts, unsigned part) {
  return place_at(parts.places, part);
}

}  // namespace attune::cuda
