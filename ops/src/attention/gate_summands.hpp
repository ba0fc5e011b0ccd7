// The terms that gradients of gates sum up, to judge errors of sums that cancel:
//
//   dg_t      = sum_{s >= t} sum_i (q_s[i] dq_s[i] - k_s[i] dk_s[i]) + ...
//   dgk_t[i]  = the same without the sum over i,   dgamma = sum_t dg_t
//   dgv_t[j]  = sum_{s >= t} (o_s[j] do_s[j] - v_s[j] dv_s[j]) + ...
//
// so q dq is the size of them for g, gk and gamma, and o do for gv, each summed over what the gate
// has no index of.
#pragma once

#include <vector>

#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::ops {

/// Arguments whose tensors have been copied to host memory.
class HostArguments {
 public:
  HostArguments(const RecurrentAttentionBackwardArgs& args, const Device& device);
  const RecurrentAttentionBackwardArgs& args() const { return args_; }

 private:
  RecurrentAttentionBackwardArgs args_;
  std::vector<Tensor> copies_;
};

/// RMS of the summands of one gate's gradient. `args` are in host memory; `dq` is [B, T, H, K] in
/// row-major order. For gamma, `each_sequence` says whether it has a value for each.
double summand_rms_of_g(const RecurrentAttentionProblem& problem,
                        const RecurrentAttentionBackwardArgs& args, const std::vector<double>& dq);
double summand_rms_of_gk(const RecurrentAttentionBackwardArgs& args, const std::vector<double>& dq);
double summand_rms_of_gamma(const RecurrentAttentionProblem& problem,
                            const RecurrentAttentionBackwardArgs& args,
                            const std::vector<double>& dq, bool each_sequence);
double summand_rms_of_gv(const RecurrentAttentionProblem& problem,
                         const RecurrentAttentionBackwardArgs& args);

}  // namespace attune::ops
