// The recurrence of one head and its gradient, in double, on dense arrays.
//
//   S_t[i,j] = L_t[i,j] S_{t-1}[i,j] + k_t[i] v_t[j]      L_t[i,j] = exp(g_t + gk_t[i] + gv_t[j])
//   o_t[j]   = scale * sum_i q_t[i] S_t[i,j]
//
// Tokens stand in the order in which they are processed, so nothing here knows of `reverse`, of
// sequences or of a group's shared heads. The decay is the exponential of the sum, not a product of
// exponentials, which could overflow where the sum does not. exp(-inf) is 0, so a finite state is
// reset exactly; an infinite one becomes NaN, as IEEE 754 has it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace attune::cpu::reference {

/// Consecutive tokens of one head.
struct TokenBlock {
  std::int64_t count = 0;
  std::int64_t key_dim = 0;    // K
  std::int64_t value_dim = 0;  // V
  double scale = 1;
  bool inclusive = false;              // S_t = L_t (S_{t-1} + k_t v_t): advance() alone knows of it
  std::vector<double> q = {}, k = {};  // [count, K]
  std::vector<double> v = {};          // [count, V]
  std::vector<double> g = {};          // [count]: what all channels share, g_t + gamma
  std::vector<double> gk = {};         // [count, K], or empty
  std::vector<double> gv = {};         // [count, V], or empty
};

/// Takes `state` [K, V] through the block's tokens.
void advance(const TokenBlock& block, std::span<double> state);

/// The same, and what each token reads: o [count, V].
void advance(const TokenBlock& block, std::span<double> state, std::vector<double>& o);

/// The states before, between and after the block's tokens, [count + 1, K, V], from the first of
/// them.
std::vector<double> states_through(const TokenBlock& block, std::span<const double> first);

/// Gradients with respect to the members of a TokenBlock, in their shapes; gk and gv even where it
/// has none.
struct TokenGradients {
  std::vector<double> q, k, v, g, gk, gv;
};

/// The gradient of a loss L. On entry `dstate` [K, V] is dL/d(state after the block) from whatever
/// follows it; on return dL/d(state before the block). `d_o` [count, V] is dL/do, or empty where
/// the loss does not depend on o.
///
/// With dS_t the gradient of all that follows, the terms of o_t included:
///
///   dS_t   += scale * q_t[i] do_t[j]
///   dq_t[i] = scale * sum_j S_t[i,j] do_t[j]
///   dk_t[i] = sum_j dS_t[i,j] v_t[j]
///   dv_t[j] = sum_i dS_t[i,j] k_t[i]
///
///   Z_t     = dS_t L_t S_{t-1}
///   dgk_t[i] = sum_j Z_t[i,j]    dgv_t[j] = sum_i Z_t[i,j]    dg_t = sum_ij Z_t[i,j]
///   dS_{t-1} = L_t dS_t
///
/// Z is 0 where L is, whatever the states are: the gradient of a -inf gate.
TokenGradients backpropagate(const TokenBlock& block, std::span<const double> d_o,
                             std::span<const double> states, std::span<double> dstate);

}  // namespace attune::cpu::reference
