#include "backward_arguments.hpp"

#include "cpu/simd/arguments.hpp"
#include "cpu/simd/forward_launch.hpp"

namespace attune::cpu::simd {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;

RecurrentForwardParams forward_params(const Problem& problem, const Args& args,
                                      const BackwardArgumentSpace& space, std::byte* workspace) {
  RecurrentForwardParams params = forward_sizes(problem);
  params.scale = static_cast<float>(args.scale);
  params.q = token_tensor(args.q);
  params.k = token_tensor(args.k);
  params.v = token_tensor(args.v);
  params.g = token_tensor(args.g);
  params.gk = token_tensor(args.gk);
  params.gv = token_tensor(args.gv);
  params.initial_state = state_tensor<const float>(args.initial_state);
  if (args.cu_seqlens) {
    params.cu_seqlens = clamped_bounds(*args.cu_seqlens, problem.T, workspace + space.bounds);
  }
  const Gamma gamma =
      gamma_values(args.gamma, params.sequences, params.heads, workspace + space.gamma);
  params.g_gamma = gamma.values;
  params.g_gamma_sequence_stride = gamma.sequence_stride;
  return params;
}

}  // namespace

BackwardArgumentSpace reserve_backward_arguments(const Problem& problem, std::size_t& size) {
  BackwardArgumentSpace space;
  const auto sequences = static_cast<std::size_t>(problem.sequences());
  space.bounds = reserve_aligned(size, problem.N > 0 ? (sequences + 1) * sizeof(std::int64_t) : 0);
  const bool constant_decay = (problem.gates & ops::kGateGamma) != 0;
  const std::size_t decays = constant_decay ? sequences * static_cast<std::size_t>(problem.H) : 0;
  space.gamma = reserve_aligned(size, decays * sizeof(float));
  space.dgamma = reserve_aligned(size, decays * sizeof(double));
  return space;
}

BackwardTensors backward_tensors(const Problem& problem, const Args& args,
                                 const BackwardArgumentSpace& space, std::byte* workspace) {
  BackwardTensors tensors;
  tensors.forward = forward_params(problem, args, space, workspace);
  tensors.d_o = token_tensor(args.d_o);
  tensors.dq = token_tensor(args.dq);
  tensors.dk = token_tensor(args.dk);
  tensors.dv = token_tensor(args.dv);
  tensors.dg = token_tensor(args.dg);
  tensors.dgk = token_tensor(args.dgk);
  tensors.dgv = token_tensor(args.dgv);
  tensors.dfinal_state = state_tensor<const float>(args.dfinal_state);
  tensors.dinitial_state = state_tensor<float>(args.dinitial_state);
  // Aligned by reserve_aligned().
  if (args.dgamma) tensors.dgamma = reinterpret_cast<double*>(workspace + space.dgamma);
  return tensors;
}

void store_dgamma(const Problem& problem, const Args& args, const BackwardTensors& tensors) {
  if (!args.dgamma) return;
  const TensorView& to = *args.dgamma;
  const std::int64_t sequences = problem.sequences();
  const double sign = args.gamma.source == ops::ConstantDecay::Source::kSlopes ? -1.0 : 1.0;
  const bool summed = to.stride(0) == 0;
  auto* const target = static_cast<float*>(to.data);
  for (std::int64_t h = 0; h < problem.H; ++h) {
    double sum = 0.0;
    for (std::int64_t n = 0; n < sequences; ++n) {
      const double value = sign * tensors.dgamma[n * problem.H + h];
      sum += value;
      if (!summed) target[n * to.stride(0) + h * to.stride(1)] = static_cast<float>(value);
    }
    if (summed) target[h * to.stride(1)] = static_cast<float>(sum);
  }
}

std::int64_t tokens_between_states(std::int64_t least, std::int64_t tokens) {
  std::int64_t between = least;
  while (between * between < tokens) between *= 2;
  return between;
}

}  // namespace attune::cpu::simd
