// The packed sequences that a walk takes where it leaves short ones out, found once: a block that
// looks for its own would do so with a multiprocessor's shared memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/chunks/views.hpp"

namespace attune::cuda {

struct LongSequences {
  std::int64_t most_left_out = 0;  // tokens of a short one; 0: none are left out
  std::int64_t most = 0;           // long ones that there may be
  int* numbers = nullptr;          // [most]: theirs, in order, then -1

  constexpr bool leaves_out(std::int64_t length) const {
    return most_left_out > 0 && length <= most_left_out;
  }
};

/// Queues the search, of `count` sequences.
void launch_long_sequences(const SequencesView& sequences, std::int64_t count,
                           const LongSequences& found, cudaStream_t stream);

}  // namespace attune::cuda
