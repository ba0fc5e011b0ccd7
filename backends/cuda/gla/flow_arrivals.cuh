// What stays within a chunk waits for the flows of its own chunk, not for all walks, where walks leave
// multiprocessors: each walk counts what it has left in the workspace of a chunk.
//
// All walks have begun when such a block does, as its launch starts when the last of them has let it. Blocks
// take chunks in the order in which the walks of D, which are the last launch, reach them.
#pragma once

#include "cuda/gla/chunk.cuh"
#include "cuda/tiles/publication.cuh"

namespace attune::cuda::gla {

#if ATTUNE_SM90A_CODE

/// Waits for the walks, or until the first thread knows that a chunk's flows are there.
__device__ __forceinline__ void wait_for_flows(const GlaParams& p, const HeadChunk& chunk) {
  if (p.flow_arrivals == nullptr) return dependency_wait();
  if (threadIdx.x != 0 || !chunk.has_flows) return;
  const int walks = p.own_tiles * p.other_tiles * (p.first_terms() + 1);
  wait_for_publications(p.flow_arrivals + chunk.index, static_cast<unsigned>(walks));
}

#endif

/// One thread, of the blocks of one head: notes when walks of D reach the chunk in `slot`, of sequences that
/// are alike or of one. All segments are walked at once, each from its end; slots without a chunk are last.
inline __device__ __noinline__ void note_arrival(const GlaParams& p, int slot) {
  const bool is_packed = p.sequences.bounds != nullptr;
  const int sequences = is_packed ? 1 : static_cast<int>(p.sequence_count);
  const int of_sequence = static_cast<int>(p.slots) / sequences;
  const int sequence = slot / of_sequence;
  const int number = slot % of_sequence;
  const int chunks =
      is_packed
          ? static_cast<int>((span_of(p.sequences, 0).length + kChunkTokens - 1) / kChunkTokens)
          : of_sequence;
  int order = number;
  if (number < chunks) {
    const int in_time = p.reverse ? chunks - 1 - number : number;
    const int of_segment = (chunks + p.segments - 1) / p.segments;
    const int whole = chunks / of_segment;  // segments that have as many
    const int left = chunks % of_segment;   // of one more
    const int segment = in_time / of_segment;
    const int step = min((segment + 1) * of_segment, chunks) - 1 - in_time;
    order = step < left ? step * (whole + 1) + segment
                        : left * (whole + 1) + (step - left) * whole + segment;
  }
  p.slots_by_arrival[order * sequences + sequence] = slot;
}

}  // namespace attune::cuda::gla
