// Gradients where gates are the same at every token, held to exactly what recurrent_attention.hpp
// allows of an error.
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <attune/ops/recurrent_attention_op.hpp>

#include "support/kernel_runs.hpp"

namespace attune::test {

/// A gradient next to the formula's.
struct GradientError {
  std::string name;
  double rms = 0;      // of the error
  double allowed = 0;  // at most

  friend std::ostream& operator<<(std::ostream& out, const GradientError& error) {
    return out << error.name << ": RMS error " << error.rms << ", allowed " << error.allowed;
  }
};

/// A case of recurrent_attention.backward, not packed and dense, whose gates are all `log_decay`.
class ConstantGates {
 public:
  ConstantGates(const KernelOnDevice& on, ProblemRef problem, float log_decay);

  TensorMap run(const ConfigBlob& config);
  /// The formula in float64 on the same inputs; rounded to f32 alone.
  const TensorMap& expected() const { return expected_; }
  /// One for each gradient of `got`.
  std::vector<GradientError> errors(const TensorMap& got) const;

 private:
  void run_formula();
  std::vector<double> summands(const std::string& gradient) const;
  std::vector<double> final_summands(const std::string& gradient) const;

  KernelOnDevice on_;
  ops::RecurrentAttentionProblem problem_;  // in f32
  bool is_f32_ = false;
  std::unique_ptr<Case> inputs_;
  std::unique_ptr<Case> formula_;
  TensorMap expected_;
  std::vector<double> o_, final_state_;
};

/// Holds a kernel to it for each of its gates, weak and strong. `info` says which problems it
/// takes. Returns how many it was held to it on.
int expect_gate_gradients_within_bounds(const KernelOnDevice& on, const DeviceInfo& info);

}  // namespace attune::test
