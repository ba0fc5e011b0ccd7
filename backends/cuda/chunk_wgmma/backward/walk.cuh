// Which chunks a thread block walks over.
//
// Chunk m of a sequence is its tokens 64 m to 64 m + 63 in memory, whatever the direction of time:
// only the sequence's last chunk has fewer. A walk is one segment of a sequence and head, with one
// part of its key and of its value channels, against or with the order in which the op processes
// tokens.
#pragma once

#include "cuda/chunk_wgmma/backward/params.hpp"
#include "cuda/chunks/views.cuh"

namespace attune::cuda::chunk_backward {

enum class Direction : int { kWithTime, kAgainstTime };

/// Lives in shared memory: every role needs some of it, few registers are left for it. Tokens are
/// fewer than 2^31, as the copy engine's coordinates are.
struct Walk {
  int batch = 0;
  int begin = 0;   // of the sequence's tokens
  int length = 0;  // of the sequence
  int sequence = 0;
  int head = 0;
  int kv_head = 0;  // that of k and v
  int owner = 0;    // the head and its part, of all heads'
  // The first of the part's channels, and the head where its shares go: of dq and dk, and of dv.
  int key_channel = 0;
  int value_channel = 0;
  int key_share = 0;
  int value_share = 0;
  int segment = 0;
  int chunks = 0;  // of the whole sequence
  int count = 0;   // chunks to visit
  int order = 0;   // of the first one visited, in the order of processing
  int step = 1;    // of `order`
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
  __device__ bool shares_tile(int n) const { return packed && rows(n) < kChunkTokens; }
  /// Where the state before this chunk is kept if it is an anchor: each chunk has a slot.
  __device__ std::int64_t anchor_slot(int n) const {
    const std::int64_t first = packed ? std::int64_t{begin / kChunkTokens} + sequence
                                      : static_cast<std::int64_t>(sequence) * chunks;
    return first + order_of(n);
  }
};

/// Walk number `index` of all sequences, heads, parts and segments.
__device__ __forceinline__ Walk walk_of(const ChunkBackwardParams& p, Direction direction,
                                        std::int64_t index) {
  const std::int64_t owner = index / p.segments;
  const std::int64_t owners = p.heads * p.parts();
  const SequenceSpan span = span_of(p.sequences, owner / owners);
  Walk walk;
  walk.batch = static_cast<int>(span.batch);
  walk.begin = static_cast<int>(span.begin);
  walk.length = static_cast<int>(span.length);
  walk.sequence = static_cast<int>(owner / owners);
  walk.owner = static_cast<int>(owner % owners);
  walk.head = walk.owner / p.parts();
  walk.kv_head = walk.head / p.heads_per_kv;
  const int key_part = walk.owner % p.parts() / p.value_parts;
  const int value_part = walk.owner % p.value_parts;
  walk.key_channel = key_part * kPartChannels;
  walk.value_channel = value_part * kPartChannels;
  walk.key_share = walk.head * p.value_parts + value_part;
  walk.value_share = walk.head * p.key_parts + key_part;
  walk.segment = static_cast<int>(index % p.segments);
  walk.packed = p.sequences.bounds != nullptr;
  walk.reverse = p.reverse;
  walk.chunks = (walk.length + kChunkTokens - 1) / kChunkTokens;
  // Segments end where there is an anchor anyway.
  const int anchors = (walk.chunks + kAnchorChunks - 1) / kAnchorChunks;
  const int share = (anchors + p.segments - 1) / p.segments * kAnchorChunks;
  const int begin = min(walk.segment * share, walk.chunks);
  const int end = min(begin + share, walk.chunks);
  walk.count = end - begin;
  walk.step = direction == Direction::kWithTime ? 1 : -1;
  walk.order = direction == Direction::kWithTime ? begin : end - 1;
  return walk;
}

}  // namespace attune::cuda::chunk_backward
