// The tokens whose gate gradients start from one snapshot.
#pragma once

#include "cuda/fused_recurrent/gate_gradients.hpp"
#include "cuda/fused_recurrent/walk_block.cuh"

namespace attune::cuda {

/// Positions top, top - 1, ... of a sequence, in the order in which states follow each other.
struct GateChunk {
  std::int64_t sequence = 0;
  SequenceSpan span;
  std::int64_t top = 0;
  int count = 0;            // 0 for a slot that no sequence uses
  bool is_at_token = true;  // the snapshot lies behind token `top`; else at the sequence's end
};

/// The last sequence whose slots start at or before `slot`.
__device__ inline std::int64_t sequence_of_slot(const SequencesView& sequences, std::int64_t count,
                                                std::int64_t slot, std::int64_t interval) {
  if (sequences.bounds == nullptr) return slot / (sequences.tokens / interval + 1);
  std::int64_t low = 0;
  std::int64_t high = count - 1;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    const bool starts_later =
        snapshot_base(sequences, middle, span_of(sequences, middle), interval) > slot;
    (starts_later ? high : low) = starts_later ? middle - 1 : middle;
  }
  return low;
}

__device__ inline GateChunk chunk_of_slot(const SequencesView& sequences,
                                          std::int64_t sequence_count, std::int64_t slot,
                                          std::int64_t interval) {
  GateChunk chunk;
  chunk.sequence = sequence_of_slot(sequences, sequence_count, slot, interval);
  chunk.span = span_of(sequences, chunk.sequence);
  const std::int64_t length = chunk.span.length;
  const std::int64_t own = slot - snapshot_base(sequences, chunk.sequence, chunk.span, interval);
  if (own < 0 || own > length / interval) return chunk;
  chunk.is_at_token = own > 0;
  chunk.top = own > 0 ? length - own * interval : length - 1;
  const std::int64_t bottom = max(length - (own + 1) * interval + 1, std::int64_t{0});
  chunk.count = static_cast<int>(max(chunk.top - bottom + 1, std::int64_t{0}));
  return chunk;
}

}  // namespace attune::cuda
