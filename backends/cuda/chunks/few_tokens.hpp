// Problems of a few tokens a sequence: which they are, and on which of them the chunked kernels are
// faster, which do not say what they expect.
#pragma once

#include <algorithm>
#include <cstdint>

#include <attune/core/error.hpp>
#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda {

/// Whether sequences are short on average: lengths of packed ones are not known on the host.
inline Support has_few_tokens(const ops::RecurrentAttentionProblem& problem) {
  constexpr std::int64_t kMostTokens = 24;  // from which on chunks are faster
  if (problem.T < kMostTokens * std::max<std::int64_t>(problem.N, 1)) return Support::yes();
  return Support::no(refused::kShape,
                     str("takes sequences of less than ", kMostTokens, " tokens, on average"));
}

/// Whether a kernel of few tokens says nothing of what it expects, so that chunks are the default.
inline bool leaves_to_chunks(const ops::RecurrentAttentionProblem& problem, bool backward) {
  constexpr std::int64_t kScalarDecays = 12, kScalarDecaysBackward = 6;  // tokens of a sequence
  constexpr std::int64_t kChannelDecays = 16;
  if (problem.dtype == DType::kF32) return false;
  const std::int64_t sequences = std::max<std::int64_t>(problem.N, 1);
  if ((problem.gates & (ops::kGateGk | ops::kGateGv)) != 0) {
    return problem.T >= kChannelDecays * sequences;
  }
  return problem.T > (backward ? kScalarDecaysBackward : kScalarDecays) * sequences;
}

}  // namespace attune::cuda
