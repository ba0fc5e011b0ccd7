#include "cuda/chunk_mma/backward/params.hpp"

#include <algorithm>

#include "cuda/chunk_mma/backward/workspace.hpp"

namespace attune::cuda::chunk_mma::backward {
namespace {

constexpr std::int64_t kQuad = 4;

TokenRows token_rows(const ConstTensorView& tensor, std::int64_t heads_per_row) {
  return {.view = token_view(tensor),
          .heads_per_row = static_cast<int>(heads_per_row),
          .channels = static_cast<int>(tensor.size(3))};
}
/// From token to token, so that 64 of them are a distance in 32 bits.
constexpr std::int64_t kMostStep = std::int64_t{1} << 24;

bool loads_quads(const ConstTensorView& tensor) {
  return tensor.size(3) % kQuad == 0 && moves_in_quads(tensor);
}

bool has_short_steps(const ConstTensorView& tensor) { return tensor.stride(1) <= kMostStep; }

/// Whether `holds` of the rows of q, k, v and, where there are any, of do.
template <class Predicate>
bool all_rows(const Args& args, Predicate&& holds) {
  return holds(args.q) && holds(args.k) && holds(args.v) && (!args.d_o || holds(*args.d_o));
}

/// Rows of walk_operands.cu: [B, T, H, operand_channels()].
TokenRows operand_rows(float* made, const Problem& problem, const ChannelSide& side) {
  const std::int64_t head = operand_channels(side.channels);
  const std::int64_t token = problem.H * head;
  return {.view = {made, problem.T * token, token, head}, .channels = side.channels};
}

/// Whether two elements may be stored at once, and each row has a multiple of these.
bool stores_pairs(const TensorView& tensor) {
  return tensor.size(3) % 2 == 0 && moves_in_quads(tensor);
}

/// A gate's rows, or others where there is none.
TokenRows gate_rows(const std::optional<ConstTensorView>& gate, const TokenRows& others) {
  if (!gate) return {.view = others.view, .exist = false, .heads_per_row = others.heads_per_row};
  return {.view = gate_view(gate).rows};
}

void set_tensors(BackwardParams& params, const Problem& problem, const Args& args) {
  // Of the caller's k and v, which k's heads tell.
  const std::int64_t heads_per_kv = problem.H / problem.Hkv;
  params.keys = {.channels = static_cast<int>(problem.K),
                 .reads = token_rows(args.q, 1),
                 .writes = token_rows(args.k, heads_per_kv),
                 .read_gradients = token_view(args.dq),
                 .write_gradients = token_view(args.dk),
                 .gate_gradients = token_view(args.dgk)};
  const TokenRows v = token_rows(args.v, heads_per_kv);
  params.values = {.channels = static_cast<int>(problem.V),
                   .reads = args.d_o ? token_rows(*args.d_o, 1) : v,
                   .writes = v,
                   .write_gradients = token_view(args.dv),
                   .gate_gradients = token_view(args.dgv)};
  params.values.reads.exist = args.d_o.has_value();
  params.keys.gates = gate_rows(args.gk, params.keys.reads);
  params.values.gates = gate_rows(args.gv, params.values.reads);
  params.short_steps = all_rows(args, has_short_steps) && (!args.gk || has_short_steps(*args.gk)) &&
                       (!args.gv || has_short_steps(*args.gv)) &&
                       problem.H * operand_channels(std::max(problem.K, problem.V)) <= kMostStep;
  params.quads = params.short_steps && all_rows(args, loads_quads);
  params.g = gate_view(args.g);
  params.shared_gates = gate_rows(args.g, params.keys.reads);
  params.gamma = decay_view(args.gamma, problem.H);
  params.sequences = sequences_view(args.cu_seqlens, problem.T);
  params.dg = token_view(args.dg);
  params.stores_pairs = stores_pairs(args.dq) && stores_pairs(args.dk) && stores_pairs(args.dv);
}

/// Where what the walks take of a side's channels is.
void set_operands(ChannelSide& side, const Problem& problem, const WalkOperands& made) {
  side.walked_reads = side.reads;
  side.walked_writes = side.writes;
  side.chunk_totals = made.chunk_totals;
  if (!side.gates.exist) return;
  side.walked_reads = operand_rows(made.reads, problem, side);
  side.walked_reads.exist = side.reads.exist;
  side.walked_writes = operand_rows(made.writes, problem, side);
}

}  // namespace

BackwardParams params_of(const Problem& problem, const Args& args, const BackwardConfig& config,
                         const Workspace& workspace) {
  BackwardParams params;
  set_tensors(params, problem, args);
  params.sequence_count = problem.sequences();
  params.heads = problem.H;
  params.scale = static_cast<float>(args.scale);
  params.reverse = problem.reverse;
  params.has_initial = args.initial_state.has_value();
  params.chunks = parts_of(problem, kTokens);
  params.walked = workspace.walked;
  params.walked_segments = workspace.walked_segments;
  params.segment_tokens = segment_tokens_of(problem, config);
  params.segments = parts_of(problem, params.segment_tokens);
  params.is_cut = workspace.is_cut;
  set_operands(params.keys, problem, workspace.keys);
  set_operands(params.values, problem, workspace.values);
  params.keys.has_shared_gates = has_key_gates(problem);
  params.values.has_shared_gates = !has_key_gates(problem);
  params.forward = workspace.forward;
  params.forward.initial = state_view(args.initial_state);
  params.back = workspace.back;
  params.back.initial = state_view(args.dfinal_state);
  params.back.final = state_view(args.dinitial_state);
  params.has_states = has_states(problem);
  params.scores = workspace.scores;
  params.gate_parts = workspace.gate_parts;
  params.score_blocks = workspace.score_parts == nullptr ? 1 : score_blocks(problem);
  params.score_parts = workspace.score_parts;
  params.score_blocks_done = workspace.score_blocks_done;
  params.gamma_terms = args.dgamma ? workspace.gamma_terms : nullptr;
  return params;
}

}  // namespace attune::cuda::chunk_mma::backward
