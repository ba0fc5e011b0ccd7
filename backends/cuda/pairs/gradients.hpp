// The gradients by pairs of tokens.
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

}  // namespace attune::cuda::pairs
