// What made-up inputs of all of attune's ops have in common.
#pragma once

#include <attune/ops/recurrent_attention_op.hpp>

#include "case_tensors.hpp"
#include "random_values.hpp"

namespace attune::ops {

/// Decays of 0.95 to 0.6 a token.
inline Tensor made_log_decays(RandomValues& random, DType dtype, const Extents& shape) {
  return random.uniform(dtype, shape, -0.5, -0.05);
}

/// States, and gradients of states.
inline Tensor made_states(RandomValues& random, const Extents& shape) {
  constexpr double kDeviation = 0.1;
  return random.normal(DType::kF32, shape, kDeviation);
}

/// The element types of a problem's gates, one gate after the other: of mixed ones the first is
/// f32.
class GateTypes {
 public:
  GateTypes(GateDType gates, DType io) : gates_(gates), io_(io) {}
  DType next() {
    const bool f32 = gates_ == GateDType::kF32 || (gates_ == GateDType::kMixed && first_);
    first_ = false;
    return f32 ? DType::kF32 : io_;
  }

 private:
  GateDType gates_;
  DType io_;
  bool first_ = true;
};

/// Where the rows of a completed problem lie. Those that are not to be aligned are shifted, unless
/// their length has seen to that.
template <class Op>
Placement placement_of(const typename Op::Problem& problem) {
  typename Op::Problem aligned = problem;
  aligned.aligned = true;
  Op::complete(aligned);
  return {.layout = problem.layout, .shifted = !problem.aligned && aligned.aligned};
}

}  // namespace attune::ops
