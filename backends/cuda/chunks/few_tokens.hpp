// Problems of a few tokens a sequence: which they are, and on which of them kernels say what they
// expect.
#pragma once

#include <algorithm>
#include <cstdint>

#include <attune/core/error.hpp>
#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda {

/// Whether sequences are short on average: lengths of packed ones are not known on the host.
inline Support has_few_tokens(const ops::RecurrentAttentionProblem& problem) {
  constexpr std::int64_t kMostOfFew = 24;  // from which on chunks are faster
  if (problem.T < kMostOfFew * std::max<std::int64_t>(problem.N, 1)) return Support::yes();
  return Support::no(refused::kShape,
                     str("takes sequences of less than ", kMostOfFew, " tokens, on average"));
}

/// Whether there are so many tokens that the roundings of decayed operands even out: a token's
/// product with itself is rounded as all others are. With one token a problem in a hundred missed
/// the tolerance of outputs, of gradients with two one in 400.
inline Support evens_out_roundings(const ops::RecurrentAttentionProblem& problem) {
  constexpr std::int64_t kTokens = 16;  // of a sequence
  constexpr std::int64_t kRows = 256;   // or of all heads
  const bool many = problem.T >= kTokens * std::max<std::int64_t>(problem.N, 1) ||
                    problem.B * problem.T * problem.H >= kRows;
  if (many) return Support::yes();
  return Support::no(refused::kShape, str("takes sequences of ", kTokens, " tokens or more, or ",
                                          kRows, " rows of all heads"));
}

/// Whether a forward kernel of few tokens says nothing of what it expects, so that chunks are the
/// default.
inline bool leaves_to_chunks(const ops::RecurrentAttentionProblem& problem) {
  constexpr std::int64_t kScalarDecays = 12;  // tokens of a sequence
  constexpr std::int64_t kChannelDecays = 16;
  if (problem.dtype == DType::kF32) return false;
  const std::int64_t sequences = std::max<std::int64_t>(problem.N, 1);
  if ((problem.gates & (ops::kGateGk | ops::kGateGv)) != 0) {
    return problem.T >= kChannelDecays * sequences;
  }
  return problem.T > kScalarDecays * sequences;
}

/// Whether sequences are of a chunk or less, on average: then chunked kernels in 16 bits say what they
/// expect a backward pass to take, of longer ones the order of the kernels is enough; and forward
/// cuda.chunk_wgmma says it of longer ones.
inline bool has_short_sequences(const ops::RecurrentAttentionProblem& problem) {
  constexpr std::int64_t kTokens = 64;
  return problem.T <= kTokens * std::max<std::int64_t>(problem.N, 1);
}

}  // namespace attune::cuda
