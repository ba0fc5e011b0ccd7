#include "cuda/decode/single_tokens.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/decode/decode.hpp"
#include "cuda/decode/tile_choice.hpp"
#include "cuda/runtime/dispatch.hpp"

namespace attune::cuda::decode {
namespace {

/// Rows [1, T, H, D] as those of a batch of tokens: with a token's stride from row to row.
template <class View>
View as_rows(View view) {
  view.batch = view.token;
  view.token = 0;
  return view;
}
GateView as_rows(GateView gate) {
  gate.rows = as_rows(gate.rows);
  return gate;
}

StepParams step_params(const ops::RecurrentAttentionProblem& problem,
                       const ops::RecurrentAttentionArgs& args) {
  StepParams params;
  params.q = as_rows(token_view(args.q));
  params.fresh = {.k = as_rows(token_view(args.k)),
                  .v = as_rows(token_view(args.v)),
                  .g = as_rows(gate_view(args.g)),
                  .gk = as_rows(gate_view(args.gk)),
                  .gv = as_rows(gate_view(args.gv))};
  params.gamma = decay_view(args.gamma, problem.H);
  params.slots = indices_view(args.first_slots());
  params.sequences = walked_sequences(args, problem.T);
  params.ends = indices_view(args.final_slots);
  params.state = pool_view(*args.states);
  params.o = as_rows(token_view(args.o));
  params.rows = problem.N;
  params.pool = args.states->size(0);
  params.heads = problem.H;
  params.heads_per_kv = problem.H / problem.Hkv;
  params.keys = problem.K;
  params.values = problem.V;
  params.scale = static_cast<float>(args.scale);
  params.rounding = args.state_rounding;
  return params;
}

/// What the launch amounts to if all sequences are single tokens.
ops::RecurrentDecodeProblem all_rows(const ops::RecurrentAttentionProblem& problem,
                                     const ops::RecurrentAttentionArgs& args) {
  return {.B = problem.N,
          .H = problem.H,
          .Hkv = problem.Hkv,
          .K = problem.K,
          .V = problem.V,
          .S = args.states->size(0),
          .dtype = problem.dtype,
          .gates = problem.gates,
          .gate_dtype = problem.gate_dtype,
          .state_dtype = problem.state_dtype,
          .rounding = problem.rounding};
}

}  // namespace

void launch_single_tokens(const ops::RecurrentAttentionProblem& problem,
                          const ops::RecurrentAttentionArgs& args, bool beside_walk,
                          cudaStream_t stream) {
  const ops::RecurrentDecodeProblem rows = all_rows(problem, args);
  DecodeConfig config = config_of_any_gpu(rows);
  config.overlap = true;  // with the end of the walk; older GPUs take no notice of it
  StepParams params = step_params(problem, args);
  params.runs_beside_previous = beside_walk;
  with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
    with_element<float, __half, __nv_bfloat16>(problem.state_dtype, [&]<class State>() {
      launch_decode<T, State>(rows, *args.states, config, params, stream);
    });
  });
}

}  // namespace attune::cuda::decode
