// What one block of a walk works on: a tile of one head's state, over the chunks of a segment.
#pragma once

#include "cuda/chunk_tf32/walk.hpp"
#include "cuda/walks/numbers.cuh"
#include "cuda/walks/segments.cuh"

namespace attune::cuda::chunk_tf32 {

struct ChunkBlock : SequenceSegment {
  std::int64_t head = 0;
  std::int64_t tile = 0;  // of the head's state
  std::int64_t tiles = 0;
  std::int64_t row_block = 0;
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;
  int rows = 0;  // that exist; the rest of the tile is padding
  int columns = 0;
  int lead = kChunk;  // steps of chunk 0
  std::int64_t chunks = 0;

  __device__ std::int64_t first_step(std::int64_t chunk) const {
    return first + (chunk == 0 ? 0 : lead + (chunk - 1) * kChunk);
  }
  __device__ int steps(std::int64_t chunk) const {
    const std::int64_t most = chunk == 0 ? lead : kChunk;
    return static_cast<int>(min(most, end - first_step(chunk)));
  }
  /// Whether a step has a token: the last one has none where a walk ends with a decay.
  __device__ bool has_token(std::int64_t step) const { return step < span.length; }
};

/// Finds what a block works on; false for one without work.
__device__ __forceinline__ bool find_block(const WalkTile& tile, const WalkParams& p,
                                           ChunkBlock& block) {
  const std::int64_t columns = column_blocks(tile, p.columns);
  block.tiles = columns * row_blocks(tile, p.rows);
  const std::int64_t number = block_number();
  const std::int64_t head = number / block.tiles;
  const std::int64_t part = head / p.heads;
  if (!find_segment(p, part, block)) return false;
  if (p.segments.sums_only && !has_sum(p.segments, block.is_last)) return false;
  block.tile = number - head * block.tiles;
  block.head = head - part * p.heads;
  block.row_block = small_quotient(block.tile, columns);
  block.first_row = block.row_block * tile.rows;
  block.first_column = (block.tile - block.row_block * columns) * tile.columns();
  block.rows = static_cast<int>(min(p.rows - block.first_row, std::int64_t{tile.rows}));
  block.columns =
      static_cast<int>(min(p.columns - block.first_column, std::int64_t{tile.columns()}));
  // The walk that keeps checkpoints and the one that meets them have chunks that end alike.
  const bool keeps = p.checkpoints.use == WalkCheckpoints::Use::kKeep;
  if (keeps && block.is_first()) block.lead = static_cast<int>(block.span.length % kChunk) + 1;
  const std::int64_t steps = block.end - block.first;
  block.chunks = steps == 0 ? 0 : 1 + ceil_div(max(steps - block.lead, std::int64_t{0}), kChunk);
  return true;
}

/// The number, in its sequence, of the checkpoint before a chunk, or behind the last one; -1: there
/// is none. One between two segments is the earlier one's.
__device__ __forceinline__ std::int64_t checkpoint_before(const WalkParams& p,
                                                          const ChunkBlock& block,
                                                          std::int64_t chunk) {
  if (p.checkpoints.use == WalkCheckpoints::Use::kNone) return -1;
  const bool keeps = p.checkpoints.use == WalkCheckpoints::Use::kKeep;
  if (keeps ? chunk == block.chunks && block.is_last : chunk == 0 && block.is_first()) return 0;
  if (chunk == 0) return -1;
  // From where the keeping walk ends back to its last token before the checkpoint.
  const std::int64_t end = block.first_step(chunk - 1) + block.steps(chunk - 1);
  const std::int64_t distance = keeps ? block.span.length - end + 1 : end;
  if (distance > block.span.length || distance % kChunk != 0) return -1;
  // A sequence has less than 2^36 tokens.
  const auto chunks = static_cast<std::uint32_t>(distance / kChunk);
  const auto interval = static_cast<std::uint32_t>(p.checkpoints.interval / kChunk);
  return chunks % interval == 0 ? std::int64_t{chunks / interval} : std::int64_t{-1};
}

}  // namespace attune::cuda::chunk_tf32
