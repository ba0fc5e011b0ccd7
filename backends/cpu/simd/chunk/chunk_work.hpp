// How much work a forward problem is, for the heuristics of the chunked kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include <attune/core/device.hpp>
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

/// Threads that have something to do: no more than cores, nor than the work is worth at
/// `flops_per_thread`.
inline std::int64_t useful_threads(const ops::RecurrentAttentionProblem& problem,
                                   const DeviceInfo& device, double flops_per_thread) {
  const double worth = 1 + ops::RecurrentAttention::flops(problem) / flops_per_thread;
  return std::min<std::int64_t>(device.cores, static_cast<std::int64_t>(std::min(worth, 1e6)));
}

}  // namespace attune::cpu::simd
