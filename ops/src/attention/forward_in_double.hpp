// The forward pass, token by token in double. The backward pass has neither o nor the final state;
// checking its gradients of gates takes them.
#pragma once

#include <cstdint>
#include <vector>

#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::ops {

/// In row-major order.
struct ForwardInDouble {
  std::vector<double> o;            // [B, T, H, V]
  std::vector<double> final_state;  // [N, H, K, V]
};

/// `args` are in host memory.
ForwardInDouble forward_in_double(const RecurrentAttentionProblem& problem,
                                  const RecurrentAttentionBackwardArgs& args);

/// Where sequence n lies.
struct SequenceSpan {
  std::int64_t batch = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
SequenceSpan sequence_span(const RecurrentAttentionProblem& problem,
                           const RecurrentAttentionBackwardArgs& args, std::int64_t n);

}  // namespace attune::ops
