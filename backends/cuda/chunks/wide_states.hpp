// Copies of states of 16 bits, for kernels whose states are f32.
//
// What sequences start from and end with lies in the workspace as f32 while a kernel runs, and so
// do its snapshots, one for each that T tokens may have: copies of a pool are a pool. That is 20
// bytes of traffic an element in place of 4, which is little beside the tokens of long sequences;
// single tokens on a pool never come here (decode/single_tokens.hpp).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/views.hpp"

namespace attune::cuda {

/// The problem of the copies, where the states of `problem` are of 16 bits.
ops::RecurrentAttentionProblem with_wide_states(ops::RecurrentAttentionProblem problem);

/// The states of a forward pass and their copies.
class WideStates {
 public:
  static std::size_t bytes(const ops::RecurrentAttentionProblem& problem);

  /// Makes the states of `args` their copies in the workspace.
  WideStates(const ops::RecurrentAttentionProblem& problem, ops::RecurrentAttentionArgs& args,
             std::byte* workspace);

  /// Queues the copies of what sequences start from.
  void load(cudaStream_t stream) const;
  /// Queues the rounding of what they end with and of snapshots, each to where it goes.
  void store(cudaStream_t stream) const;

  struct Params {
    ConstStateView initial;  // elements in 16 bits, as all of these
    StateView final;
    SnapshotsView snapshots;
    SequencesView sequences;
    std::int64_t sequence_count = 0;
    std::int64_t parts = 0;  // snapshots that there may be (walks/sequence_parts.hpp)
    std::int64_t heads = 0;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    bool quads = false;  // four columns of any row may be moved at once
    StateRounding rounding;
    float* states = nullptr;            // [N + parts, H, K, V]
    std::int32_t* own = nullptr;        // [N]: n, the slots of sequences among the copies
    std::int32_t* kept_at = nullptr;    // [N, T / every]: those of snapshots, or -1
    std::int64_t kept_of_sequence = 0;  // T / every
  };

 private:
  DType dtype_;
  Params params_;
};

}  // namespace attune::cuda
