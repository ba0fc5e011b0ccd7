// Which tokens a chunk of a sequence has, and where they lie.
#pragma once

#include "cuda/chunk_wgmma/backward/tiles.cuh"
#include "cuda/chunks/views.cuh"
#include "cuda/gla/params.hpp"

namespace attune::cuda::gla_backward {

using chunk_backward::kChunkTokens;
using chunk_backward::kPanelChannels;

__device__ __forceinline__ float2 times(float2 a, float2 b) { return {a.x * b.x, a.y * b.y}; }

/// The slot of a sequence's first chunk; each chunk has one, in the order of memory.
__device__ __forceinline__ std::int64_t first_slot(const SequencesView& sequences,
                                                   std::int64_t sequence,
                                                   const SequenceSpan& span) {
  if (sequences.bounds != nullptr) return span.begin / kChunkTokens + sequence;
  return sequence * ((span.length + kChunkTokens - 1) / kChunkTokens);
}

/// A chunk of one head. Positions are tokens in the order of processing.
struct ChunkPlace {
  std::int64_t index = 0;  // of [heads, slots]
  std::int64_t sequence = 0;
  std::int64_t head = 0;
  std::int64_t group = 0;  // the head of y and z
  std::int64_t batch = 0;
  std::int64_t token = 0;  // the first in memory
  int rows = 0;            // tokens, 0 for a slot that no sequence uses
  bool reverse = false;

  /// The row of a tile, or of memory from `token` on. Where it is past the sequence, there is no
  /// such token.
  __device__ int row(int position) const {
    return reverse ? kChunkTokens - 1 - position : position;
  }
  __device__ bool has(int position) const { return row(position) < rows; }
};

/// The sequence that has a slot, or the last one that starts before it.
__device__ __forceinline__ unsigned sequence_of_slot(const GlaBackwardParams& p, unsigned slot) {
  if (p.sequences.bounds == nullptr) {
    return slot / static_cast<unsigned>((p.sequences.tokens + kChunkTokens - 1) / kChunkTokens);
  }
  unsigned low = 0;
  auto high = static_cast<unsigned>(p.sequence_count) - 1;
  while (low < high) {
    const unsigned middle = (low + high + 1) / 2;
    const bool later = first_slot(p.sequences, middle, span_of(p.sequences, middle)) > slot;
    (later ? high : low) = later ? middle - 1 : middle;
  }
  return low;
}

/// Chunk `index` of [heads, slots], of which there are fewer than 2^30.
__device__ __forceinline__ ChunkPlace chunk_place(const GlaBackwardParams& p, unsigned index) {
  const auto slots = static_cast<unsigned>(p.slots);
  const unsigned slot = index % slots;
  ChunkPlace place;
  place.index = index;
  place.head = index / slots;
  place.group = place.head / p.group;
  place.reverse = p.reverse;
  place.sequence = sequence_of_slot(p, slot);
  const SequenceSpan span = span_of(p.sequences, place.sequence);
  const std::int64_t chunk = slot - first_slot(p.sequences, place.sequence, span);
  place.batch = span.batch;
  place.token = span.begin + chunk * kChunkTokens;
  const std::int64_t left = span.length - chunk * kChunkTokens;
  place.rows = static_cast<int>(min(max(left, std::int64_t{0}), std::int64_t{kChunkTokens}));
  return place;
}

/// The chunk that a block takes, of [heads, slots]: neighbours in time take neighbours in memory,
/// which are the heads of the same tokens.
__device__ __forceinline__ unsigned chunk_of_block(const GlaBackwardParams& p, unsigned block) {
  const auto heads = static_cast<unsigned>(p.heads);
  return block % heads * static_cast<unsigned>(p.slots) + block / heads;
}

/// Byte of a channel (an even one, of which two are accessed) of a row in a tile.
__device__ __forceinline__ std::uint32_t tile_byte(int row, int channel) {
  return static_cast<std::uint32_t>(channel / kPanelChannels * chunk_backward::kPanelBytes) +
         swizzled(static_cast<std::uint32_t>(row),
                  static_cast<std::uint32_t>(channel % kPanelChannels) * 2);
}

/// Channels that a row of the own side's tiles has, and their panels.
__host__ __device__ inline int own_channels(const GlaBackwardParams& p) {
  return p.part_channels * p.own_parts;
}
__host__ __device__ inline int own_panels(const GlaBackwardParams& p) {
  return own_channels(p) / kPanelChannels;
}
__host__ __device__ inline int other_channels(const GlaBackwardParams& p) {
  return p.part_channels * p.other_parts;
}

/// Bytes of a tile of so many parts.
__device__ __forceinline__ std::int64_t tile_bytes(const GlaBackwardParams& p, int parts) {
  return std::int64_t{kChunkTokens * 2} * p.part_channels * parts;
}
/// Part `part` of `parts` of tile `index` of the workspace.
__device__ __forceinline__ unsigned char* workspace_tile(const GlaBackwardParams& p, void* tiles,
                                                         std::int64_t index, int parts,
                                                         int part = 0) {
  return static_cast<unsigned char*>(tiles) + (index * parts + part) * tile_bytes(p, 1);
}
/// Bytes of a tensor of tiles.
__device__ __forceinline__ std::int64_t tiles_bytes(const GlaBackwardParams& p, int parts) {
  return p.slots * p.heads * tile_bytes(p, parts);
}

}  // namespace attune::cuda::gla_backward
