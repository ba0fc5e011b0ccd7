// The recurrent forward kernel on an op's arguments (forward_launch.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <attune/ops/recurrent_attention_op.hpp>

#include "recurrent_forward.hpp"

namespace attune::cpu::simd {

/// Tasks of a launch; its threads are never more.
std::int64_t task_count(const ops::RecurrentAttentionProblem& problem,
                        const RecurrentForwardConfig& config);

std::size_t launch_workspace_bytes(const ops::RecurrentAttentionProblem& problem,
                                   const RecurrentForwardConfig& config);

/// `workspace` has at least launch_workspace_bytes(), aligned to 64.
void launch(const ops::RecurrentAttentionProblem& problem, const ops::RecurrentAttentionArgs& args,
            const RecurrentForwardConfig& config, std::span<std::byte> workspace);

}  // namespace attune::cpu::simd
