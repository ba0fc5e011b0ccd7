// From what the segments of sequences add to the state to the state before each of them: step 2 of
// segments.hpp.
#pragma once

#include "cuda/walks/walk.hpp"

namespace attune::cuda {

/// Queues the fold of a walk in segments for an element type: float, __half or __nv_bfloat16.
template <class T>
void launch_segment_fold(const WalkParams& params, cudaStream_t stream);

/// Queues a walk, in segments where it has some; only what the final state takes where that is
/// wanted alone. walk(params) queues one walk of them.
template <class T, class Walk>
void walk_in_segments(const WalkParams& params, cudaStream_t stream, Walk&& walk) {
  if (params.segments.tokens > 0) {
    WalkParams sums = params;
    sums.segments.sums_only = true;
    sums.read = {};
    sums.out = {};
    sums.planes = nullptr;
    sums.snapshots = {};
    sums.checkpoints.use = WalkCheckpoints::Use::kNone;
    walk(sums);
    launch_segment_fold<T>(params, stream);
    if (params.segments.final_only) return;
  }
  walk(params);
}

}  // namespace attune::cuda
