// From the op's arguments to a forward kernel's, and to tasks on threads.
//
// Each of the threads that a config allows has tasks and scratch memory of its own. Which of them
// runs a task is not fixed and does not matter to the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cpu/simd/recurrent_attention/recurrent_forward_params.hpp"
#include "cpu/simd/task_queue.hpp"

namespace attune::cpu::simd {

/// The sizes of a problem, without tensors.
RecurrentForwardParams forward_sizes(const ops::RecurrentAttentionProblem& problem);

/// What lies where in the workspace of a launch, in bytes.
struct ForwardWorkspace {
  std::int64_t threads = 0;
  std::size_t scratch_bytes = 0;  // each thread's, from the start on
  std::size_t bounds = 0;         // int64 [N + 1], when packed
  std::size_t gamma = 0;          // float [N, H], when there is a constant decay
  std::size_t size = 0;
};

/// `threads` of `scratch_bytes`, a multiple of 64, each.
ForwardWorkspace forward_workspace(const ops::RecurrentAttentionProblem& problem,
                                   std::int64_t threads, std::size_t scratch_bytes);

/// What a kernel's tasks read. `memory` is the workspace: bounds and decays are written there.
RecurrentForwardParams forward_params(const ops::RecurrentAttentionProblem& problem,
                                      const ops::RecurrentAttentionArgs& args,
                                      const ForwardWorkspace& layout, std::byte* memory);

/// Calls run(params, first, last, scratch) until all `tasks` were run.
template <class Run>
void launch_forward(const ops::RecurrentAttentionProblem& problem,
                    const ops::RecurrentAttentionArgs& args, const ForwardWorkspace& layout,
                    std::int64_t tasks, std::span<std::byte> workspace, const Run& run) {
  if (tasks == 0) return;
  const RecurrentForwardParams params = forward_params(problem, args, layout, workspace.data());
  const auto body = [&](std::int64_t thread, std::int64_t first, std::int64_t last) {
    std::byte* const scratch =
        workspace.data() + static_cast<std::size_t>(thread) * layout.scratch_bytes;
    run(params, first, last, scratch);
  };
  // A few tokens of equally long sequences take no longer than their states take to come from
  // another core.
  constexpr std::int64_t kFewTokens = 4;
  if (problem.N == 0 && problem.T <= kFewTokens) {
    run_task_shares(tasks, layout.threads, body);
  } else {
    run_task_queue(tasks, layout.threads, body);
  }
}

}  // namespace attune::cpu::simd
