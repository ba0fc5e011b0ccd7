// The default problems of the ops that lower to another, and the list of all ops.
#include <attune/ops/gated_linear_attention.hpp>
#include <attune/ops/lightning_attention.hpp>
#include <attune/ops/lightning_decode.hpp>
#include <attune/ops/register.hpp>
#include <attune/ops/state_fold_op.hpp>
#include <attune/ops/state_summary_op.hpp>

#include "operands/problem_rules.hpp"

namespace attune::ops {

Params GatedLinearAttention::expand(Params params) {
  return expand_gates(kName, std::move(params), "gk", kGateGk, kGateGk | kGateGamma);
}

Params LightningAttention::expand(Params params) {
  return expand_gates(kName, std::move(params), "gamma", kGateGamma, kGateGamma);
}

Params LightningDecode::expand(Params params) {
  return expand_gates(kName, std::move(params), "gamma", kGateGamma, kGateGamma);
}

void register_ops(Registry& registry) {
  registry.add_op<RecurrentAttention>();
  registry.add_op<RecurrentAttentionBackward>();
  registry.add_op<RecurrentDecode>();
  registry.add_op<StateSummary>();
  registry.add_op<StateFold>();
  registry.add_alias<GatedLinearAttention>();
  registry.add_alias<GatedLinearAttentionBackward>();
  registry.add_alias<LightningAttention>();
  registry.add_alias<LightningAttentionBackward>();
  registry.add_alias<LightningDecode>();
}

}  // namespace attune::ops
