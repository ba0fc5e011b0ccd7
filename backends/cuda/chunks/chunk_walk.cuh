// Which chunks a thread block walks over: those of one segment of a sequence and head, against or
// with the order in which the op processes tokens.
#pragma once

#include "cuda/chunks/chunk.hpp"
#include "cuda/chunks/views.cuh"

namespace attune::cuda {

enum class Direction : int { kWithTime, kAgainstTime };

/// The slot of a sequence's first chunk in a head's, see chunk.hpp.
__device__ __forceinline__ std::int64_t first_chunk_slot(const SequencesView& sequences,
                                                         std::int64_t sequence,
                                                         const SequenceSpan& span) {
  if (sequences.bounds != nullptr) return span.begin / kChunkTokens + sequence;
  return sequence * chunks_of(span.length);
}

/// Lives in shared memory: every role needs some of it, few registers are left for it. Tokens are
/// fewer than 2^31, as the copy engine's coordinates are.
struct ChunkWalk {
  int batch = 0;
  int begin = 0;   // of the sequence's tokens
  int length = 0;  // of the sequence
  int sequence = 0;
  int head = 0;
  int kv_head = 0;  // that of k and v
  // Where blocks take tiles of a head's channels: the head and tile, of all heads'; the first of
  // the tile's channels; and the head where its partial sums go, of dq and dk, and of dv.
  int owner = 0;
  int key_channel = 0;
  int value_channel = 0;
  int key_partial = 0;
  int value_partial = 0;
  int segment = 0;
  int segments = 1;    // of the sequence; 0: the block has no walk
  int chunks = 0;      // of the whole sequence
  int count = 0;       // chunks to visit
  int order = 0;       // of the first one visited, in the order of processing
  int last_order = 0;  // of the last one of the segment, in that order
  int step = 1;        // of `order`
  bool reverse = false;
  bool packed = false;

  /// The place of the n-th visited chunk in the order of processing, and in memory.
  __device__ int order_of(int n) const { return order + step * n; }
  __device__ int chunk(int n) const { return reverse ? chunks - 1 - order_of(n) : order_of(n); }
  /// Its first token, and how many rows of its tiles are tokens of the sequence.
  __device__ int token(int n) const { return begin + chunk(n) * kChunkTokens; }
  __device__ int rows(int n) const { return min(length - chunk(n) * kChunkTokens, kChunkTokens); }
  /// Whether the tile's other rows are those of another sequence. Past the tensor's end, the copy
  /// engine reads zeros and writes nothing.
  __device__ bool has_other_rows(int n) const { return packed && rows(n) < kChunkTokens; }
  /// The slot of the sequence's first chunk in a head's, see chunk.hpp.
  __device__ std::int64_t first_slot() const {
    return packed ? std::int64_t{begin / kChunkTokens} + sequence
                  : static_cast<std::int64_t>(sequence) * chunks;
  }
};

/// A walk over a sequence, of no segment and no head yet.
__device__ __forceinline__ ChunkWalk walk_of_sequence(const SequenceSpan& span) {
  ChunkWalk walk;
  walk.batch = static_cast<int>(span.batch);
  walk.begin = static_cast<int>(span.begin);
  walk.length = static_cast<int>(span.length);
  return walk;
}

/// Makes it that of one of so many segments, which begin and end between chunks. Params has the
/// sequences, and `reverse`.
template <class Params>
__device__ __forceinline__ void take_segment(ChunkWalk& walk, const Params& p, Direction direction,
                                             std::int64_t segment, int segments) {
  walk.segment = static_cast<int>(segment);
  walk.segments = segments;
  walk.packed = p.sequences.bounds != nullptr;
  walk.reverse = p.reverse;
  walk.chunks = (walk.length + kChunkTokens - 1) / kChunkTokens;
  const int per_segment = (walk.chunks + segments - 1) / segments;
  const int begin = min(walk.segment * per_segment, walk.chunks);
  const int end = min(begin + per_segment, walk.chunks);
  walk.count = end - begin;
  walk.last_order = end - 1;
  walk.step = direction == Direction::kWithTime ? 1 : -1;
  walk.order = direction == Direction::kWithTime ? begin : end - 1;
}

}  // namespace attune::cuda
