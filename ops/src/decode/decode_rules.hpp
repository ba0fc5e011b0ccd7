// A call of recurrent_decode under either of its names.
#pragma once

#include <optional>

#include <attune/core/operand_check.hpp>
#include <attune/ops/recurrent_decode.hpp>

#include "operands/constant_decay.hpp"
#include "operands/problem_rules.hpp"

namespace attune::ops {

/// What the operands of a step do not say.
struct DecodeRules : OperandRules<RecurrentDecode> {
  std::optional<double> scale = {};
  bool allow_tf32 = false;
  StateRounding rounding = {};

  void check_inputs(OperandCheck& check, const Args& args) const;
  void complete(const OperandCheck& check, const Args& args, bool outputs, Problem& problem) const;
  void lower(const OperandCheck& check, Args& args) const;

  Storage storage(const Problem& problem) const { return storage_of<RecurrentDecode>(problem); }
  Tensor random_indices(const OperandInfo& operand, const Problem& problem, RandomValues&) const;
};

/// Whether q, k, v or o have more than one row of channels.
inline bool has_several_rows(const RecurrentDecodeProblem& p) {
  return p.B > 1 || (p.B == 1 && (p.H > 1 || p.T > 1 || p.R > 1));
}

/// A call as its caller gave it.
struct DecodeCall {
  DecodeRules rules;
  RecurrentDecodeArgs args;
};

/// Of the options of either op.
template <class Options>
DecodeCall decode_call(std::string_view op, const ConstTensorView& q, const ConstTensorView& k,
                       const ConstTensorView& v, const TensorView& state, const Options& options) {
  DecodeCall call;
  call.rules.name = op;
  call.rules.scale = options.scale;
  call.rules.allow_tf32 = options.call.allow_tf32;
  call.rules.rounding = options.state_rounding;
  call.args.q = q;
  call.args.k = k;
  call.args.v = v;
  call.args.state = state;
  call.args.slot_indices = options.slot_indices;
  call.args.kept_slots = options.kept_slots;
  call.args.accepted = options.accepted;
  if (options.committed) {
    call.args.committed_k = options.committed->k;
    call.args.committed_v = options.committed->v;
    call.args.committed_g = options.committed->g;
    call.args.committed_gk = options.committed->gk;
    call.args.committed_gv = options.committed->gv;
    call.args.committed_accepted = options.committed->accepted;
  }
  if constexpr (requires { options.g; }) {
    call.args.g = options.g;
    call.args.gk = options.gk;
    call.args.gv = options.gv;
    call.args.gamma = constant_decay(op, {.g_gamma = options.g_gamma});
  } else {
    call.args.gamma = constant_decay(op, {.g_gamma = options.g_gamma,
                                          .slopes = options.slopes,
                                          .layer_idx = options.layer_idx,
                                          .num_layers = options.num_layers,
                                          .required = true});
  }
  return call;
}

}  // namespace attune::ops
