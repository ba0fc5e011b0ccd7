// From the op's arguments to the tensors of the chunked backward kernel on tile registers, and to
// tasks on threads. A task is a kv head of a sequence, with all its query heads; results do not
// depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <attune/ops/recurrent_attention_op.hpp>

#include "tiles_backward_config.hpp"

namespace attune::cpu::simd {

std::size_t tiles_backward_workspace_bytes(const ops::RecurrentAttentionProblem& problem,
                                           const TilesBackwardConfig& config);

/// `workspace` has at least tiles_backward_workspace_bytes(), aligned to 64.
void launch_tiles_backward(const ops::RecurrentAttentionProblem& problem,
                           const ops::RecurrentAttentionBackwardArgs& args,
                           const TilesBackwardConfig& config, std::span<std::byte> workspace);

}  // namespace attune::cpu::simd
