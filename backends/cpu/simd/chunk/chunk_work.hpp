// How much work a forward problem is, for the heuristics of the chunked kernels.
#pragma once

#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cpu::simd {

/// Work that keeps a thread busy ten times longer than it takes to wake it.
inline constexpr double kFlopsPerThread = 2e6;

/// Inputs and outputs above this come from memory, or from pages that no TLB remembers. Rows are
/// fetched ahead then, and outputs written past the caches.
inline constexpr double kFarBytes = 32.0 * 1024 * 1024;

inline std::int64_t tokens_per_sequence(const ops::RecurrentAttentionProblem& problem) {
  return problem.N > 0 ? problem.T / problem.N : problem.T;
}

inline bool is_far(const ops::RecurrentAttentionProblem& problem) {
  return ops::RecurrentAttention::bytes(problem) > kFarBytes;
}

}  // namespace attune::cpu::simd
