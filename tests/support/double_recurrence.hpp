// The formula of recurrent_attention.hpp once more, one element at a time, in double, on dense
// row-major vectors: what the oracle itself is checked against. It shares no code with any kernel;
// gradients are differences, or the formula's where those are not exact enough.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace attune::test {

/// Shapes as in recurrent_attention.hpp. An empty vector is a tensor that is not given.
struct DoubleRecurrence {
  std::int64_t B = 1, T = 0, H = 1, Hkv = 1, K = 1, V = 1;
  std::vector<std::int64_t> cu_seqlens = {};  // [N + 1] when packed
  bool reverse = false;
  double scale = 1;
  std::vector<double> q = {}, k = {}, v = {};
  std::vector<double> g = {}, gamma = {}, gk = {}, gv = {};  // gamma [N, H]
  std::vector<double> initial_state = {};
  std::vector<double> d_o = {}, dfinal_state = {};  // what the loss weighs the outputs with

  std::int64_t sequences() const {
    return cu_seqlens.empty() ? B : static_cast<std::int64_t>(cu_seqlens.size()) - 1;
  }
};

struct DoubleOutputs {
  std::vector<double> o, final_state;
};

/// What `look` is shown: sequence n's state [K,V] of head h after so many of its tokens, 0 among
/// them.
using LookAtStates = std::function<void(std::int64_t n, std::int64_t tokens, std::int64_t h,
                                        std::span<const double> state)>;

DoubleOutputs run(const DoubleRecurrence& inputs, const LookAtStates& look = {});

/// The gradient of the same loss as below with respect to each input, by the formula of the
/// backward pass; gamma's [N, H], and gates' even where there are none.
struct DoubleGradients {
  std::vector<double> q, k, v, g, gk, gv, gamma, initial_state;
};
DoubleGradients gradients(const DoubleRecurrence& inputs);

/// The gradient of sum(o * d_o) + sum(final_state * dfinal_state) with respect to one of the
/// inputs, by central differences: good to about 1e-9 where values and gradients are of order 1.
std::vector<double> finite_differences(DoubleRecurrence inputs,
                                       std::vector<double> DoubleRecurrence::*input);

}  // namespace attune::test
