#include "forward_launch.hpp"

#include "arguments.hpp"

namespace attune::cpu::simd {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

RecurrentForwardParams forward_sizes(const Problem& problem) {
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

ForwardWorkspace forward_workspace(const Problem& problem, std::int64_t threads,
                                   std::size_t scratch_bytes) {
  ForwardWorkspace layout;
  layout.threads = threads;
  layout.scratch_bytes = scratch_bytes;
  reserve_aligned(layout.size, static_cast<std::size_t>(threads) * scratch_bytes);
  const auto sequences = static_cast<std::size_t>(problem.sequences());
  layout.bounds =
      reserve_aligned(layout.size, problem.N > 0 ? (sequences + 1) * sizeof(std::int64_t) : 0);
  const bool constant_decay = (problem.gates & ops::kGateGamma) != 0;
  layout.gamma = reserve_aligned(
      layout.size,
      constant_decay ? sequences * static_cast<std::size_t>(problem.H) * sizeof(float) : 0);
  return layout;
}

RecurrentForwardParams forward_params(const Problem& problem, const Args& args,
                                      const ForwardWorkspace& layout, std::byte* memory) {
  RecurrentForwardParams params = forward_sizes(problem);
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

}  // namespace attune::cpu::simd
