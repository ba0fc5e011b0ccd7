// A call of recurrent_attention, forward or backward, under any of its names.
#pragma once

#include <optional>

#include <attune/core/operand_check.hpp>
#include <attune/ops/recurrent_attention.hpp>

#include "operands/constant_decay.hpp"
#include "operands/problem_rules.hpp"

namespace attune::ops {

/// What the operands of a call do not say. `O` is RecurrentAttention or its backward pass.
template <class O>
struct AttentionRules : OperandRules<O> {
  using Args = typename O::Args;
  using Problem = typename O::Problem;

  std::optional<double> scale = {};
  bool reverse = false;
  bool allow_tf32 = false;
  bool want_final_state = false;    // read where there are no outputs yet
  std::int64_t snapshot_every = 0;  // the forward pass's, as the next
  StateRounding state_rounding = {};
  std::optional<ConstTensorView> cu_seqlens_host = {};  // the values of cu_seqlens

  /// Those of a call with this problem.
  static AttentionRules of(const Problem& problem) {
    AttentionRules rules;
    rules.reverse = problem.reverse;
    rules.allow_tf32 = problem.tf32;
    rules.snapshot_every = problem.snapshot_every;
    rules.state_rounding.kind = problem.rounding;
    return rules;
  }

  void begin(OperandCheck& check, const Args& args) const;
  void respell(OperandCheck& check, Args& args) const;
  void check_inputs(OperandCheck& check, const Args& args) const;
  void complete(const OperandCheck& check, const Args& args, bool outputs, Problem& problem) const;
  void lower(const OperandCheck& check, Args& args) const;

  Storage storage(const Problem& problem) const { return storage_of<O>(problem); }
  Extents random_shape(const OperandInfo& operand, const Problem& problem) const;
  Tensor random_indices(const OperandInfo& operand, const Problem& problem,
                        RandomValues& random) const;

 private:
  void check_sizes(const OperandCheck& check, const Args& args) const;
  void check_sequences(OperandCheck& check, const Args& args) const;
  std::int64_t snapshots_of(const OperandCheck& check, const Args& args) const;
};
extern template struct AttentionRules<RecurrentAttention>;
extern template struct AttentionRules<RecurrentAttentionBackward>;

/// A call as its caller gave it.
template <class Op>
struct AttentionCall {
  AttentionRules<Op> rules;
  typename Op::Args args;
};

/// Throws InvalidArgument where a backward pass is given what only the forward pass takes.
template <class Options>
void refuse_pool(std::string_view op, const Options& options) {
  const auto refuse = [&](bool given, std::string_view name) {
    if (given) throw InvalidArgument(str(op, ": ", name, ": given to the backward pass"));
  };
  refuse(options.states.has_value(), "states");
  refuse(options.initial_slots.has_value(), "initial_slots");
  refuse(options.final_slots.has_value(), "final_slots");
  refuse(options.snapshot_slots.has_value(), "snapshot_slots");
  refuse(options.snapshot_every != 0, "snapshot_every");
}

/// Of the options of any of the three ops; gated_linear_attention's gk is set besides.
template <class Op, class Options>
AttentionCall<Op> attention_call(std::string_view op, const ConstTensorView& q,
                                 const ConstTensorView& k, const ConstTensorView& v,
                                 const Options& options) {
  AttentionCall<Op> call;
  call.rules.name = op;
  call.rules.scale = options.scale;
  call.rules.reverse = options.reverse;
  call.rules.allow_tf32 = options.call.allow_tf32;
  call.rules.want_final_state = options.want_final_state;
  call.rules.cu_seqlens_host = options.cu_seqlens_host;
  call.args.q = q;
  call.args.k = k;
  call.args.v = v;
  call.args.initial_state = options.initial_state;
  call.args.cu_seqlens = options.cu_seqlens;
  call.rules.snapshot_every = options.snapshot_every;
  call.rules.state_rounding = options.state_rounding;
  if constexpr (std::is_same_v<Op, RecurrentAttention>) {
    call.args.states = options.states;
    call.args.initial_slots = options.initial_slots;
    call.args.final_slots = options.final_slots;
    call.args.snapshot_slots = options.snapshot_slots;
  } else {
    refuse_pool(op, options);
  }
  if constexpr (requires { options.gv; }) {
    call.args.g = options.g;
    call.args.gk = options.gk;
    call.args.gv = options.gv;
  }
  if constexpr (requires { options.slopes; }) {
    call.args.gamma = constant_decay(op, {.g_gamma = options.g_gamma,
                                          .slopes = options.slopes,
                                          .layer_idx = options.layer_idx,
                                          .num_layers = options.num_layers,
                                          .required = true});
  } else {
    call.args.gamma = constant_decay(op, {.g_gamma = options.g_gamma});
  }
  return call;
}

}  // namespace attune::ops
