// From the backward op's arguments to the tensors of a launch, and back to the gradients that are
// summed up at its end. What every backward kernel does alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

#include "backward_tensors.hpp"

namespace attune::cpu::simd {

/// Where in a workspace lies what arguments are turned into; offsets in bytes.
struct BackwardArgumentSpace {
  std::size_t bounds = 0;  // int64 [N + 1], when packed
  std::size_t gamma = 0;   // float [N, H], when there is a constant decay
  std::size_t dgamma = 0;  // double [N, H], as well
};

/// Takes its part of a workspace that takes up `size` bytes so far.
BackwardArgumentSpace reserve_backward_arguments(const ops::RecurrentAttentionProblem& problem,
                                                 std::size_t& size);

BackwardTensors backward_tensors(const ops::RecurrentAttentionProblem& problem,
                                 const ops::RecurrentAttentionBackwardArgs& args,
                                 const BackwardArgumentSpace& space, std::byte* workspace);

/// Writes args.dgamma, where it is given, from the gradient of each head's log decay.
void store_dgamma(const ops::RecurrentAttentionProblem& problem,
                  const ops::RecurrentAttentionBackwardArgs& args, const BackwardTensors& tensors);

/// Tokens between two of the states that gate gradients are summed up anew from: `least`, a power
/// of two, or more, so that no more states are kept than there are tokens between two.
std::int64_t tokens_between_states(std::int64_t least, std::int64_t tokens);

}  // namespace attune::cpu::simd
