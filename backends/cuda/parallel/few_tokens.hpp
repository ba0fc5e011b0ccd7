// On which of the problems of a few tokens a sequence the chunked kernels are faster, which do not
// say what they expect of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda {

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
