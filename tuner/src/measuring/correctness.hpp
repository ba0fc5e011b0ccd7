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

/// What a check holds a candidate against: on an op's reduced problem, what an oracle gives, and the
/// inputs' bytes as they were; on the problem itself, what another candidate gives, which may be off by
/// the tolerance as well.
enum class Check { kReduced, kFullSize };

/// Runs a candidate twice, over outputs filled with different bytes. Both runs have to give the
/// same bits, within tolerance of `expected` (finite where it has no such output): a kernel with a
/// data race, or one that reads an output or leaves a part of it unwritten, does not. Nothing
/// outside of the tensors may be written, nor an input where those are compared.
Verdict check_on(Harness& harness, const Candidate& candidate, const TensorMap& expected,
                 Check check);

/// What the exception being handled says, whatever it is.
std::string describe_current_exception();

/// The expected outputs of an op's reduced problem, to check candidates against.
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
  Harness harness_;
  TensorMap expected_;
};

}  // namespace attune::tuning
