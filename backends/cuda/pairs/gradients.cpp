#include "cuda/pairs/gradients.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/runtime/dispatch.hpp"

namespace attune::cuda::pairs {
using AttentionProblem = ops::RecurrentAttentionProblem;
using BackwardArgs = ops::RecurrentAttentionBackwardArgs;

BackwardMemory::BackwardMemory(const AttentionProblem& problem, std::byte* memory) : parts(memory) {
  const std::int64_t rows = problem.B * problem.T * problem.H;
  const auto floats = [&](std::int64_t count) {
    return parts.take<float>(count * static_cast<std::int64_t>(sizeof(float)));
  };
  const auto terms = [&](bool given, std::int64_t channels) -> GateTerms {
    if (!given) return {};
    return {floats(rows * channels), floats(rows * channels)};
  };
  shared_terms = terms((problem.gates & (ops::kGateG | ops::kGateGamma)) != 0, 1);
  key_terms = terms((problem.gates & ops::kGateGk) != 0, problem.K);
  value_terms = terms((problem.gates & ops::kGateGv) != 0, problem.V);
  if ((problem.gates & ops::kGateGamma) != 0 && problem.sequences() > 1) {
    gamma_terms = floats(problem.sequences() * problem.H);
  }
}

BackwardParams backward_params(const AttentionProblem& problem, const BackwardArgs& args,
                               const BackwardMemory& memory) {
  BackwardParams params;
  static_cast<Inputs&>(params) = inputs_of(problem, args);
  params.d_o = token_view(args.d_o);
  params.dq = token_view(args.dq);
  params.dk = token_view(args.dk);
  params.dv = token_view(args.dv);
  params.shared_terms = memory.shared_terms;
  params.key_terms = memory.key_terms;
  params.value_terms = memory.value_terms;
  params.dg = token_view(args.dg);
  params.dgk = token_view(args.dgk);
  params.dgv = token_view(args.dgv);
  params.single_tokens = has_single_tokens(problem);
  return params;
}

void launch_gradients(const AttentionProblem& problem, const BackwardParams& params, int warps,
                      cudaStream_t stream) {
  with_element<float, __half, __nv_bfloat16>(
      problem.dtype, [&]<class T>() { launch_backward<T>(params, warps, stream); });
}

}  // namespace attune::cuda::pairs
