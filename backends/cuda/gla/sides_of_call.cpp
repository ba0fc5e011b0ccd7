// The tensors of a call, as each side with gates sees them.
#include <utility>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/padded_rows.hpp"
#include "cuda/gla/params.hpp"
#include "cuda/tiles/tensor_map.hpp"

namespace attune::cuda::gla {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;

void set_map(CUtensorMap& map, const ConstTensorView& tensor) {
  if (!tensor.empty()) map = head_map(tensor, kChunkTokens);
}

/// Strides of a state with the gated side's channels first.
template <class View>
View own_first(View view, bool values_first) {
  if (values_first) std::swap(view.k, view.v);
  return view;
}

void set_key_side(GlaParams& params, const Args& args) {
  params.x = token_view(args.q);
  params.y = token_view(args.k);
  params.u = token_view(*args.d_o);
  params.z = token_view(args.v);
  params.dx = token_view(args.dq);
  params.dy = token_view(args.dk);
  params.dz = token_view(args.dv);
  params.channel_gate = gate_view(args.gk);
  params.dchannel_gate = token_view(args.dgk);
  params.gate_in_pairs = has_pairs(*args.gk) && has_pairs(*args.dgk);
}

void set_value_side(GlaParams& params, const Args& args) {
  params.x = token_view(*args.d_o);
  params.y = token_view(args.v);
  params.u = token_view(args.q);
  params.z = token_view(args.k);
  params.dy = token_view(args.dv);
  params.dz = token_view(args.dk);
  params.du = token_view(args.dq);
  params.channel_gate = gate_view(args.gv);
  params.dchannel_gate = token_view(args.dgv);
  params.gate_in_pairs = has_pairs(*args.gv) && has_pairs(*args.dgv);
}

/// What is not of one side's channels.
void set_shared(GlaParams& params, const Args& args, bool of_values) {
  using Source = ops::ConstantDecay::Source;
  params.g = gate_view(args.g);
  params.gamma = decay_view(args.gamma, params.heads);
  params.dg = token_view(args.dg);
  if (args.dgamma) {
    params.dgamma = {static_cast<float*>(args.dgamma->data), args.dgamma->stride(0),
                     args.dgamma->stride(1)};
  } else {
    params.dgamma_terms = nullptr;
  }
  if (args.gamma.source == Source::kSlopes) params.dgamma_sign = -1.0F;
  params.dinitial_state = own_first(state_view(args.dinitial_state), of_values);
  params.scale = static_cast<float>(args.scale);
}

/// What each side sees.
void set_common(GlaParams& params, const Problem& problem, const Args& args, bool of_values) {
  params.sequences = sequences_view(args.cu_seqlens, problem.T);
  params.sequences.most_left_out = most_left_out(problem);
  params.initial_state = own_first(state_view(args.initial_state), of_values);
  params.dfinal_state = own_first(state_view(args.dfinal_state), of_values);
  params.score_scale = static_cast<float>(args.scale);
}

/// Rows of the workspace for each token and head, of whole 16 bytes.
TokenView rows_of_partials(const Problem& problem, void* partials, std::int64_t channels) {
  const std::int64_t row = padded_channels(channels);
  return {partials, problem.T * problem.H * row, problem.H * row, row};
}

void set_partials(GatedSides& sides, const Problem& problem) {
  GlaParams& first = sides.first;
  if (first.heads_per_kv == 1) return;
  first.dy = rows_of_partials(problem, first.dy_partials, first.own);
  first.dz = rows_of_partials(problem, first.dz_partials, first.other);
  sides.second.dy = first.dz;
}

}  // namespace

GatedSides gated_sides(const Problem& problem, const Args& args, const GlaBackwardConfig& config,
                       std::byte* workspace) {
  GatedSides sides(problem, config, workspace);
  GlaParams& first = sides.first;
  sides.first_of_values ? set_value_side(first, args) : set_key_side(first, args);
  set_common(first, problem, args, sides.first_of_values);
  set_shared(first, args, sides.first_of_values);
  if (sides.both) {
    set_value_side(sides.second, args);
    set_common(sides.second, problem, args, true);
  } else {
    set_map(first.u_map, sides.first_of_values ? args.q : *args.d_o);
    set_map(first.z_map, sides.first_of_values ? args.k : args.v);
  }
  set_partials(sides, problem);
  return sides;
}

}  // namespace attune::cuda::gla
