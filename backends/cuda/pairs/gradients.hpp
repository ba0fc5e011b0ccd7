// The gradients by pairs of tokens, of all sequences or of short ones.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/pairs/pairs.hpp"
#include "cuda/runtime/workspace_parts.hpp"

namespace attune::cuda::pairs {

/// Whether no sequence has more than one token.
inline bool has_single_tokens(const ops::RecurrentAttentionProblem& problem) {
  return problem.N == 0 && problem.T == 1;
}

/// The memory of a backward pass, of which none is there while its bytes are counted.
struct BackwardMemory {
  BackwardMemory(const ops::RecurrentAttentionProblem& problem, std::byte* memory);

  WorkspaceParts parts;
  GateTerms shared_terms, key_terms, value_terms;
  float* gamma_terms = nullptr;  // [N, H], where sequences may share a gradient
};

/// All but where the gradient of gamma goes.
BackwardParams backward_params(const ops::RecurrentAttentionProblem& problem,
                               const ops::RecurrentAttentionBackwardArgs& args,
                               const BackwardMemory& memory);
/// Queues the pass, of the problem's type.
void launch_gradients(const ops::RecurrentAttentionProblem& problem, const BackwardParams& params,
                      int warps, cudaStream_t stream);

// Of a backward pass that walks packed sequences by chunks, which begin with no state: those of few
// tokens are made here, as a walk takes as long for one token as for a chunk.

/// Tokens up to which a sequence is short: as many pairs of them as take about a chunk's time.
inline constexpr std::int64_t kShortSequence = 16;

std::size_t short_sequences_bytes(const ops::RecurrentAttentionProblem& problem);
/// Queues the gradients of short sequences, behind what else writes to their rows. `dgamma_terms`:
/// null, or [N, H, terms_of_head], of which theirs become terms of the gradient of gamma's values.
/// `memory` is of short_sequences_bytes().
void launch_short_sequences(const ops::RecurrentAttentionProblem& problem,
                            const ops::RecurrentAttentionBackwardArgs& args, float* dgamma_terms,
                            int terms_of_head, std::byte* memory, cudaStream_t stream);

}  // namespace attune::cuda::pairs
