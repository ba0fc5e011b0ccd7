// Whether a candidate computes what it should.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <attune/core/tensor.hpp>
#include <attune/tuner/candidate_runner.hpp>

#include "measuring/harness.hpp"

namespace attune::tuning {

/// Two runs over different poison: outputs within tolerance of `expected` (finite where it names
/// none), and bitwise equal both times, which a kernel that leaves or reads an output's old bytes,
/// or that races, does not reach.
/// Nothing outside of its tensors may be written, nor, where that is compared, an input.
enum class Inputs { kTrust, kCompare };
Verdict check_on(Bench& bench, const Candidate& candidate, const TensorMap& expected,
                 Inputs inputs);

/// What the exception being handled says, whatever it is.
std::string describe_current_exception();

/// Outputs on an op's reduced problem, to check candidates against.
class Oracle {
 public:
  /// `kernel` is the oracle, on `device` or, when it does not run there, on the host. Null, or one
  /// that cannot take the reduced problem: the answers of `fallback`, the default's kernel, under
  /// its heuristic.
  Oracle(const OpInfo& op, ProblemRef problem, const Device& device, std::uint64_t seed,
         const RegisteredKernel* kernel, const ErasedKernel* fallback);

  /// Checks a candidate for the full problem on the reduced one. Nothing when its config does not
  /// fit there.
  std::optional<Verdict> check(const Candidate& candidate);

 private:
  bool answer_by(const OpInfo& op, const Device& device, std::uint64_t seed,
                 const ErasedKernel& kernel);

  AnyProblem reduced_;
  Bench bench_;
  TensorMap expected_;
};

}  // namespace attune::tuning
