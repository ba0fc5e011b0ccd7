// Which packed sequences, or chunks of theirs, a walk takes where it leaves short sequences out, found
// once: blocks that find that they have nothing to do take a multiprocessor's memory for it.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "cuda/chunks/segment_walk.hpp"
#include "cuda/chunks/views.hpp"

namespace attune::cuda {

/// Numbers of sequences, or of their chunks (chunk.hpp), in order.
struct WalkedList {
  std::int64_t most = 0;   // that there may be
  int* numbers = nullptr;  // [most]: those that there are, then -1; null: all are walked

  std::int64_t bytes() const { return most * std::int64_t{sizeof(int)}; }
};

/// The most sequences that have more tokens than those that are left out, of `count`.
constexpr std::int64_t most_walked(const SequencesView& sequences, std::int64_t count) {
  const std::int64_t most = sequences.tokens / (sequences.most_left_out + 1);
  return std::clamp(most, std::int64_t{1}, std::max(count, std::int64_t{1}));
}

/// Queues what makes the list, where there is one, of `count` sequences. `chunk_tokens`: of a chunk; 0
/// for a list of sequences.
void launch_walked_list(const SequencesView& sequences, std::int64_t count, const WalkedList& list,
                        std::int64_t chunk_tokens, cudaStream_t stream);

/// The same list of sequences, as parts that are whole.
void launch_walked_places(const SequencesView& sequences, std::int64_t count,
                          const SequenceParts& parts, cudaStream_t stream);

}  // namespace attune::cuda
