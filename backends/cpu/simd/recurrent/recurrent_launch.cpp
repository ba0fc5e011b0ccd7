#include "recurrent_launch.hpp"

#include <algorithm>
#include <optional>

#include "cpu/simd/arguments.hpp"
#include "cpu/simd/task_queue.hpp"

namespace attune::cpu::simd {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

RecurrentForwardParams sizes_of(const Problem& problem) {
  RecurrentForwardParams params;
  params.batch = problem.B;
  params.tokens = problem.T;
  params.heads = problem.H;
  params.kv_heads = problem.Hkv;
  params.key_dim = problem.K;
  params.value_dim = problem.V;
  params.sequences = problem.sequences();
  params.reverse = problem.reverse;
  return params;
}

/// What lies where in the workspace, in bytes.
struct Workspace {
  std::int64_t threads = 0;
  std::size_t scratch_bytes = 0;  // each thread's, from the start on
  std::size_t bounds = 0;         // int64 [N + 1], when packed
  std::size_t gamma = 0;          // float [N, H], when there is a constant decay
  std::size_t size = 0;

  std::size_t reserve(std::size_t bytes) { return reserve_aligned(size, bytes); }
};

Workspace workspace_of(const Problem& problem, const RecurrentForwardConfig& config) {
  const RecurrentForwardParams sizes = sizes_of(problem);
  Workspace layout;
  const std::int64_t tasks = recurrent_forward_task_count(config, sizes);
  layout.threads = std::min<std::int64_t>(config.threads, tasks);
  layout.scratch_bytes = recurrent_forward_scratch_bytes(config, sizes);
  layout.reserve(static_cast<std::size_t>(layout.threads) * layout.scratch_bytes);
  const auto sequences = static_cast<std::size_t>(sizes.sequences);
  layout.bounds = layout.reserve(problem.N > 0 ? (sequences + 1) * sizeof(std::int64_t) : 0);
  const bool constant_decay = (problem.gates & ops::kGateGamma) != 0;
  layout.gamma = layout.reserve(
      constant_decay ? sequences * static_cast<std::size_t>(problem.H) * sizeof(float) : 0);
  return layout;
}

RecurrentForwardParams params_of(const Problem& problem, const Args& args, const Workspace& layout,
                                 std::byte* memory) {
  RecurrentForwardParams params = sizes_of(problem);
  params.q = token_tensor(args.q);
  params.k = token_tensor(args.k);
  params.v = token_tensor(args.v);
  params.o = token_tensor(args.o);
  params.g = token_tensor(args.g);
  params.gk = token_tensor(args.gk);
  params.gv = token_tensor(args.gv);
  params.initial_state = state_tensor<const float>(args.initial_state);
  params.final_state = state_tensor<float>(args.final_state);
  params.scale = static_cast<float>(args.scale);
  if (args.cu_seqlens) {
    params.cu_seqlens = clamped_bounds(*args.cu_seqlens, problem.T, memory + layout.bounds);
  }
  const Gamma gamma =
      gamma_values(args.gamma, params.sequences, params.heads, memory + layout.gamma);
  params.g_gamma = gamma.values;
  params.g_gamma_sequence_stride = gamma.sequence_stride;
  return params;
}

}  // namespace

std::int64_t task_count(const Problem& problem, const RecurrentForwardConfig& config) {
  return recurrent_forward_task_count(config, sizes_of(problem));
}

std::size_t launch_workspace_bytes(const Problem& problem, const RecurrentForwardConfig& config) {
  return workspace_of(problem, config).size;
}

void launch(const Problem& problem, const Args& args, const RecurrentForwardConfig& config,
            std::span<std::byte> workspace) {
  const Workspace layout = workspace_of(problem, config);
  const std::int64_t tasks = task_count(problem, config);
  if (tasks == 0) return;
  const RecurrentForwardParams params = params_of(problem, args, layout, workspace.data());

  run_task_queue(tasks, layout.threads,
                 [&](std::int64_t thread, std::int64_t first, std::int64_t last) {
                   std::byte* const scratch =
                       workspace.data() + static_cast<std::size_t>(thread) * layout.scratch_bytes;
                   recurrent_forward(config, params, first, last, scratch);
                 });
}

}  // namespace attune::cpu::simd
