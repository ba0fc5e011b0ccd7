// Gradients of tokens behind the last packed sequence: zeros, whichever kernel makes the others.
#pragma once

#include <cuda_runtime_api.h>

#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/runtime/handles.hpp"

namespace attune::cuda {

/// Queues the zeros. The problem is packed.
void clear_gradients_behind(const ops::RecurrentAttentionProblem& problem,
                            const ops::RecurrentAttentionBackwardArgs& args, cudaStream_t stream);

/// A backward kernel that writes the gradients of the tokens of sequences, made one that writes
/// all.
template <class Inner>
class WithRowsBehind final : public Inner {
 public:
  using Problem = ops::RecurrentAttentionProblem;
  using Args = ops::RecurrentAttentionBackwardArgs;

  void run(const Problem& problem, const Args& args, const typename Inner::Config& config,
           const LaunchSite& site) const override {
    Inner::run(problem, args, config, site);
    if (problem.N == 0) return;
    const DeviceGuard guard(args.q.device.index);
    clear_gradients_behind(problem, args, static_cast<cudaStream_t>(site.stream));
  }
};

}  // namespace attune::cuda
