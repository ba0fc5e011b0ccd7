// Random small problems of recurrent_attention, and tensors for them in every layout a caller may
// use.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <attune/core/tensor.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "support/double_recurrence.hpp"

namespace attune::test {

/// Any combination of types, gates, states, layouts, direction and packing; at most 9 tokens and 5
/// channels.
ops::RecurrentAttentionProblem random_problem(std::uint64_t seed);

/// Inputs filled with random values of order 1, outputs with NaN. Owns what its args point to.
///
/// Layout::kStrided pads every row; it also stores states as [V, K] and bounds at every second
/// place of an i64 array (otherwise i32). Some packed sequences are empty.
class RecurrentTensors {
 public:
  RecurrentTensors(const ops::RecurrentAttentionProblem& problem, std::uint64_t seed);

  /// A tensor of `shape`, every element `value`, as this problem's layout has it; lives as long as
  /// this object.
  TensorView add(DType dtype, const Extents& shape, double value);
  /// The same with normally distributed elements: mean + deviation * N(0, 1).
  TensorView add_random(DType dtype, const Extents& shape, double mean, double deviation);

  /// The inputs' values, exactly.
  DoubleRecurrence as_doubles() const;

  ops::RecurrentAttentionProblem problem;
  ops::RecurrentAttentionArgs forward;
  ops::RecurrentAttentionBackwardArgs backward;

 private:
  void add_inputs();
  void add_outputs();
  void add_bounds();

  std::mt19937_64 random_;
  std::vector<Tensor> memory_;
};

/// Gates of both sides that would each leave the range of a float within a few tokens, while what
/// a state decays by stays close to 1: `log_decay` in g or gk, its opposite in gv, the other way
/// round at every second token where `alternating`.
RecurrentTensors gates_that_cancel(const ops::RecurrentAttentionProblem& problem, double log_decay,
                                   bool alternating);

/// Element i of a view in row-major order := values[i], rounded to its type.
void assign(const TensorView& to, const std::vector<double>& values);

}  // namespace attune::test
