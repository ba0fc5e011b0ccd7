// What one block of a walk does: which tile of which head's state, over which tokens.
#pragma once

#include "cuda/chunks/views.cuh"
#include "cuda/fused_recurrent/walk.hpp"

namespace attune::cuda {

/// Blocks are numbered in x first, and in y where x has no more numbers.
inline constexpr std::int64_t kMostBlocksInX = std::int64_t{1} << 30;

inline dim3 grid_of(std::int64_t blocks) {
  return {static_cast<unsigned>(blocks < kMostBlocksInX ? blocks : kMostBlocksInX),
          static_cast<unsigned>(ceil_div(blocks, kMostBlocksInX))};
}
__device__ __forceinline__ std::int64_t block_number() {
  return static_cast<std::int64_t>(blockIdx.y) * kMostBlocksInX + blockIdx.x;
}

/// The first slot of a sequence's snapshots. Those of different sequences do not overlap, unless
/// the sequences do.
__device__ __forceinline__ std::int64_t snapshot_base(const SequencesView& sequences,
                                                      std::int64_t n, const SequenceSpan& span,
                                                      std::int64_t interval) {
  return sequences.bounds != nullptr ? span.begin / interval + n
                                     : n * (sequences.tokens / interval + 1);
}

/// What is loaded in place of what is not there. A load that were skipped instead would be a branch
/// of its own, at whose end the thread waits for it.
static __device__ const uint4 kZeroQuad = {0, 0, 0, 0};

struct WalkBlock {
  std::int64_t sequence = 0;
  std::int64_t head = 0;
  std::int64_t tile = 0;  // of the head's state, and its place there
  std::int64_t row_block = 0;
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;
  int rows = 0;  // that are there; the tile's others are padding
  int columns = 0;
  std::int64_t tiles = 0;
  SequenceSpan span;
  std::int64_t steps = 0;
  int lead = 0;  // steps of stage 0
  std::int64_t stages = 0;
};

/// Steps [first, first + count).
struct WalkStage {
  std::int64_t first = 0;
  int count = 0;
  __device__ std::int64_t end() const { return first + count; }
};

/// False for a block beyond the last.
__device__ inline bool find_block(const WalkShape& shape, const WalkParams& p, WalkBlock& block) {
  const std::int64_t columns = column_blocks(shape, p.columns);
  block.tiles = columns * row_blocks(shape, p.rows);
  const std::int64_t number = block_number();
  const std::int64_t head = number / block.tiles;
  if (head >= p.sequence_count * p.heads) return false;
  block.tile = number % block.tiles;
  block.sequence = head / p.heads;
  block.head = head % p.heads;
  block.row_block = block.tile / columns;
  block.first_row = block.row_block * shape.rows();
  block.first_column = block.tile % columns * shape.columns();
  block.rows = static_cast<int>(min(p.rows - block.first_row, std::int64_t{shape.rows()}));
  block.columns =
      static_cast<int>(min(p.columns - block.first_column, std::int64_t{shape.columns()}));

  // Stages of a walk that keeps snapshots end where those of the walk that meets them do.
  block.span = span_of(p.sequences, block.sequence);
  const std::int64_t length = block.span.length;
  block.steps = length + (p.decays_last && length > 0 ? 1 : 0);
  block.lead = p.snapshots.use == WalkSnapshots::Use::kKeep
                   ? static_cast<int>(length % shape.tokens) + 1
                   : shape.tokens;
  block.stages = block.steps == 0
                     ? 0
                     : 1 + ceil_div(max(block.steps - block.lead, std::int64_t{0}), shape.tokens);
  return true;
}

__device__ __forceinline__ WalkStage stage_of(const WalkShape& shape, const WalkBlock& block,
                                              std::int64_t stage) {
  const std::int64_t first = stage == 0 ? 0 : block.lead + (stage - 1) * shape.tokens;
  const std::int64_t most = stage == 0 ? block.lead : shape.tokens;
  return {first, static_cast<int>(min(most, block.steps - first))};
}

/// The slot of the snapshot that belongs before a stage, or behind the last one; -1: none does.
__device__ __forceinline__ std::int64_t slot_before(const WalkShape& shape, const WalkParams& p,
                                                    const WalkBlock& block, std::int64_t stage) {
  if (p.snapshots.use == WalkSnapshots::Use::kNone) return -1;
  const bool keeps = p.snapshots.use == WalkSnapshots::Use::kKeep;
  if (stage == (keeps ? block.stages : 0)) return 0;
  if (stage == 0) return -1;
  // From where the keeping walk ends back to its last token before the snapshot.
  const std::int64_t end = stage_of(shape, block, stage - 1).end();
  const std::int64_t distance = keeps ? block.span.length - end + 1 : end;
  if (distance > block.span.length || distance % p.snapshots.interval != 0) return -1;
  return distance / p.snapshots.interval;
}

}  // namespace attune::cuda
