// Whether gradients are written past the caches.
#pragma once

#include <algorithm>

#include <attune/core/device.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cpu::simd {

/// Whether a backward pass has too many tensors to leave its gradients in the caches of `threads`
/// for whoever reads them next. Past the caches, their lines are not read before they are written:
/// a tenth of the time, on one core of a Sapphire Rapids as on 16.
inline bool streams_gradients(const ops::RecurrentAttentionProblem& problem,
                              const DeviceInfo& device, int threads) {
  constexpr double kLeastCache = 1024.0 * 1024.0;  // where it is not known
  const double cache = std::max(static_cast<double>(device.l2_bytes), kLeastCache);
  return ops::RecurrentAttentionBackward::bytes(problem) > cache * threads;
}

}  // namespace attune::cpu::simd
