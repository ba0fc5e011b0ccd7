// From the op's arguments to the recurrent backward kernel's, and to tasks on threads.
//
// A task is a sequence and a kv head: the query heads of a group add to dk and dv one after the
// other, so results do not depend on the number of threads. Denormals count as zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <attune/ops/recurrent_attention_op.hpp>

#include "backward_config.hpp"

namespace attune::cpu::simd {

/// Tasks of a launch; its threads are never more.
std::int64_t backward_task_count(const ops::RecurrentAttentionProblem& problem);

std::size_t backward_workspace_bytes(const ops::RecurrentAttentionProblem& problem,
                                     const RecurrentBackwardConfig& config);

/// `workspace` has at least backward_workspace_bytes(), aligned to 64.
void launch_backward(const ops::RecurrentAttentionProblem& problem,
                     const ops::RecurrentAttentionBackwardArgs& args,
                     const RecurrentBackwardConfig& config, std::span<std::byte> workspace);

}  // namespace attune::cpu::simd
