// How warps find sequences to work on where most of them may be left out: single tokens on a pool
// (decode/single_tokens.hpp), or short ones (pairs/short_sequences.hpp).
#pragma once

#include "cuda/chunks/views.cuh"

namespace attune::cuda {

/// Of the numbers from `number` on, every step-th: the first that is not below `end`, or whose
/// sequence, sequence_of() of it, walks take. All lanes of a warp look, each at a number of its
/// own, as every look waits for memory.
template <class SequenceOf>
__device__ __forceinline__ unsigned next_walked(const SequencesView& sequences, unsigned number,
                                                unsigned step, unsigned end,
                                                SequenceOf&& sequence_of) {
  const unsigned own = threadIdx.x % kWarpSize * step;
  for (;; number += kWarpSize * step) {
    const unsigned at = number + own;
    const bool is_it = at >= end || !span_of(sequences, sequence_of(at)).is_left_out;
    const unsigned those = __ballot_sync(kFullWarp, is_it);
    if (those != 0) return number + (__ffs(static_cast<int>(those)) - 1) * step;
  }
}

}  // namespace attune::cuda
