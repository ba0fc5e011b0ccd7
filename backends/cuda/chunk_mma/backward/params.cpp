#include "cuda/chunk_mma/backward/params.hpp"

#include "cuda/chunk_mma/backward/workspace.hpp"

namespace attune::cuda::chunk_mma::backward {
namespace {

constexpr std::int64_t kQuad = 4;

TokenRows token_rows(const ConstTensorView& tensor, std::int64_t heads_per_row) {
  return {.view = token_view(tensor),
          .heads_per_row = static_cast<int>(heads_per_row),
          .channels = static_cast<int>(tensor.size(3))};
}
bool loads_quads(const ConstTensorView& tensor) {
  return tensor.size(3) % kQuad == 0 && moves_in_quads(tensor);
}

/// Rows of walk_operands.cu: [B, T, H, operand_channels(K)].
TokenRows operand_rows(float* made, const Problem& problem) {
  const std::int64_t head = operand_channels(problem.K);
  const std::int64_t token = problem.H * head;
  return {.view = {made, problem.T * token, token, head}, .channels = static_cast<int>(problem.K)};
}

/// Whether two elements may be stored at once, and each row has a multiple of these.
bool stores_pairs(const TensorView& tensor) {
  return tensor.size(3) % 2 == 0 && moves_in_quads(tensor);
}

void set_tensors(BackwardParams& params, const Problem& problem, const Args& args) {
  // Of the caller's k and v, which k's heads tell.
  const std::int64_t heads_per_kv = problem.H / problem.Hkv;
  params.q = token_rows(args.q, 1);
  params.k = token_rows(args.k, heads_per_kv);
  params.v = token_rows(args.v, heads_per_kv);
  params.d_o = args.d_o ? token_rows(*args.d_o, 1) : params.v;
  params.d_o.exist = args.d_o.has_value();
  params.quads = loads_quads(args.q) && loads_quads(args.k) && loads_quads(args.v) &&
                 (!args.d_o || loads_quads(*args.d_o));
  params.g = gate_view(args.g);
  params.shared_gates.view = args.g ? params.g.rows : params.q.view;
  params.shared_gates.exist = args.g.has_value();
  params.gk = gate_view(args.gk);
  params.gamma = decay_view(args.gamma, problem.H);
  params.sequences = sequences_view(args.cu_seqlens, problem.T);
  params.dq = token_view(args.dq);
  params.dk = token_view(args.dk);
  params.dv = token_view(args.dv);
  params.dg = token_view(args.dg);
  params.dgk = token_view(args.dgk);
  params.stores_pairs = stores_pairs(args.dq) && stores_pairs(args.dk) && stores_pairs(args.dv);
}

}  // namespace

BackwardParams params_of(const Problem& problem, const Args& args, const BackwardConfig& config,
                         const Workspace& workspace) {
  BackwardParams params;
  set_tensors(params, problem, args);
  params.sequence_count = problem.sequences();
  params.heads = problem.H;
  params.key_channels = static_cast<int>(problem.K);
  params.value_channels = static_cast<int>(problem.V);
  params.scale = static_cast<float>(args.scale);
  params.reverse = problem.reverse;
  params.has_initial = args.initial_state.has_value();
  params.chunks = parts_of(problem, kTokens);
  params.segment_tokens = segment_tokens_of(problem, config);
  params.segments = parts_of(problem, params.segment_tokens);
  params.is_cut = workspace.is_cut;
  params.walked_q = params.q;
  params.walked_k = params.k;
  if (has_key_gates(problem)) {
    params.walked_q = operand_rows(workspace.q, problem);
    params.walked_k = operand_rows(workspace.k, problem);
  }
  params.decay_width = decay_width(problem);
  params.chunk_totals = workspace.chunk_totals;
  params.forward = workspace.forward;
  params.forward.initial = state_view(args.initial_state);
  params.back = workspace.back;
  params.back.initial = state_view(args.dfinal_state);
  params.back.final = state_view(args.dinitial_state);
  params.gamma_terms = args.dgamma ? workspace.gamma_terms : nullptr;
  return params;
}

}  // namespace attune::cuda::chunk_mma::backward
