// The terms that gradients of gates sum up, to judge errors of sums that cancel:
//
//   dg_t      = <S_T, dS_T> + sum_{s >= t} sum_i (q_s[i] dq_s[i] - k_s[i] dk_s[i])
//   dgk_t[i]  = the same without the sum over i,   dgamma = sum_t dg_t
//   dgv_t[j]  = the sum over i of S_T[i, j] dS_T[i, j] + sum_{s >= t} (o_s[j] do_s[j] - v_s[j] dv_s[j])
//
// with the final state S_T and its gradient. So what is read, q dq or o do, and what is left in
// the final state are the size of them, each summed over what the gate has no index of
// (recurrent_attention.hpp).
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

/// For each gate RMS(read) + RMS(left), of one call. `args` are in host memory and, as the problem,
/// outlive it; `dq` is [B, T, H, K] in row-major order.
class GateSummands {
 public:
  GateSummands(const RecurrentAttentionProblem& problem, const RecurrentAttentionBackwardArgs& args,
               std::vector<double> dq);

  double rms_of_g() const;
  double rms_of_gk() const;
  double rms_of_gv() const;
  /// `each_sequence` says whether gamma has a value for each.
  double rms_of_gamma(bool each_sequence) const;

 private:
  std::vector<double> left_of_keys() const;
  std::vector<double> left_of_values() const;
  std::vector<double> left_of_heads() const;

  const RecurrentAttentionProblem& problem_;
  const RecurrentAttentionBackwardArgs& args_;
  std::vector<double> read_;  // q dq, [B, T, H, K]
  std::vector<double> o_;  // [B, T, H, V], empty where neither gv nor the final state asks for it
  std::vector<double> left_;  // [N, H, K, V], empty without a gradient of the final state
};

}  // namespace attune::ops
