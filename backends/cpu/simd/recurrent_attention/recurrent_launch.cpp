#include "recurrent_launch.hpp"

#include <algorithm>

#include "cpu/simd/forward_launch.hpp"

namespace attune::cpu::simd {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

ForwardWorkspace workspace_of(const Problem& problem, const RecurrentForwardConfig& config) {
  return forward_workspace(problem,
                           std::min<std::int64_t>(config.threads, task_count(problem, config)),
                           recurrent_forward_scratch_bytes(config, forward_sizes(problem)));
}

}  // namespace

std::int64_t task_count(const Problem& problem, const RecurrentForwardConfig& config) {
  return recurrent_forward_task_count(config, forward_sizes(problem));
}

std::size_t launch_workspace_bytes(const Problem& problem, const RecurrentForwardConfig& config) {
  return workspace_of(problem, config).size;
}

void launch(const Problem& problem, const Args& args, const RecurrentForwardConfig& config,
            std::span<std::byte> workspace) {
  launch_forward(
      problem, args, workspace_of(problem, config), task_count(problem, config), workspace,
      [&](const RecurrentForwardParams& params, std::int64_t first, std::int64_t last,
          std::byte* scratch) { recurrent_forward(config, params, first, last, scratch); });
}

}  // namespace attune::cpu::simd
