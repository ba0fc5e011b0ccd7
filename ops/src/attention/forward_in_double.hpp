// The forward pass, token by token in double. The backward pass has no o; checking its dgv takes
// one.
#pragma once

#include <cstdint>
#include <vector>

#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::ops {

/// o [B, T, H, V] in row-major order. `args` are in host memory.
std::vector<double> forward_in_double(const RecurrentAttentionProblem& problem,
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
