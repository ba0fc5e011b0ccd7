#include "measuring/correctness.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <map>
#include <new>

#include <attune/core/error.hpp>
#include <attune/core/in_place.hpp>
#include <attune/core/log.hpp>
#include <attune/core/operand_case.hpp>

namespace attune::tuning {
namespace {

constexpr std::byte kFirstPoison{0xFF};   // NaN in every floating-point type
constexpr std::byte kSecondPoison{0x7B};  // a large finite number

std::vector<Digest> digests_of_outputs(const Harness& harness) {
  std::vector<ConstTensorView> views;
  for (const NamedTensor& output : harness.first().outputs()) views.push_back(output.view);
  return digests_of(views, harness.device());
}

Verdict wrong(std::string reason, double error) {
  return {TrialOutcome::kWrong, std::move(reason), error};
}

Verdict verdict_of(const OutputCheck& output, Check check) {
  if (output.passed) return {TrialOutcome::kOk, "", output.error};
  const double allowed = 2 * output.tolerance;
  if (check == Check::kFullSize && std::isfinite(output.error)) {
    if (output.error <= allowed) return {TrialOutcome::kOk, "", output.error};
    return wrong(str(output.name, ": relative RMS error ", output.error,
                     " beside the default's, at most ", allowed, " is allowed"),
                 output.error);
  }
  return wrong(output.reason.empty() ? str(output.name, ": relative error ", output.error,
                                           ", at most ", output.tolerance, " is allowed")
                                     : str(output.name, ": ", output.reason),
               output.error);
}

/// The first output that is not as expected, or kOk with the worst error. `digests`: of the outputs,
/// which suffice where nothing is expected and outputs are large.
Verdict compare(const Harness& harness, const std::vector<Digest>& digests,
                const TensorMap& expected, Check check) {
  std::vector<OutputCheck> checks;
  if (expected.empty()) {
    const std::vector<NamedTensor> outputs = harness.first().outputs();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      checks.push_back(check_finite(outputs[i], digests[i], harness.device()));
    }
  } else {
    checks = harness.first().compare(expected);
  }
  double worst = 0;
  for (const OutputCheck& output : checks) {
    Verdict verdict = verdict_of(output, check);
    if (!verdict.ok()) return verdict;
    worst = std::max(worst, output.error);
  }
  return {TrialOutcome::kOk, "", worst};
}

/// The first output of which two runs give different bits, or "".
std::string first_difference(const Harness& harness, const std::vector<Digest>& first,
                             const std::vector<Digest>& second) {
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i] != second[i]) return harness.first().outputs()[i].name;
  }
  return "";
}

Verdict check_runs(Harness& harness, const Candidate& candidate, const TensorMap& expected,
                   Check check) {
  using Sums = std::map<const void*, std::uint64_t>;
  const bool compares_inputs = check == Check::kReduced;
  harness.reserve(candidate);
  harness.reset(kFirstPoison);
  const Sums before = compares_inputs ? harness.sums_of_inputs() : Sums();
  harness.run(candidate);
  if (const std::string damage = harness.take_damage(); !damage.empty()) {
    return wrong(str("writes ", damage, " bytes"), 0);
  }
  const std::vector<Digest> first = digests_of_outputs(harness);
  const Verdict verdict = compare(harness, first, expected, check);
  if (!verdict.ok()) return verdict;
  if (compares_inputs && harness.sums_of_inputs() != before) {
    return wrong("changes its inputs", verdict.error);
  }
  harness.reset(kSecondPoison);
  harness.run(candidate);
  const std::string differs = first_difference(harness, first, digests_of_outputs(harness));
  if (!differs.empty()) {
    return wrong(str(differs, ": two runs do not give the same bits"), verdict.error);
  }
  return verdict;
}

}  // namespace

Verdict check_on(Harness& harness, const Candidate& candidate, const TensorMap& expected,
                 Check check) {
  try {
    return check_runs(harness, candidate, expected, check);
  } catch (...) {
    return {TrialOutcome::kFailed, describe_current_exception(), 0};
  }
}

std::string describe_current_exception() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return std::string(kOutOfMemory);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "threw what is no std::exception";
  }
}

Oracle::Oracle(const OpInfo& op, ProblemRef problem, const Device& device, std::uint64_t seed,
               const RegisteredKernel* kernel, const ErasedKernel* fallback)
    : reduced_(op.reduced(problem)), harness_(op, reduced_, device, seed) {
  if (kernel != nullptr && answer_by(op, oracle_device(*kernel, device), seed, *kernel->kernel))
    return;
  if (fallback != nullptr && !answer_by(op, device, seed, *fallback)) {
    log(LogLevel::kWarning,
        str("no kernel gives expected values for ", op.name, " ", op.text(reduced_, false),
            ": candidates are only checked to be finite and repeatable"));
  }
}

bool Oracle::answer_by(const OpInfo& op, const Device& device, std::uint64_t seed,
                       const ErasedKernel& kernel) {
  if (!kernel.erased_supports(reduced_, device.info())) return false;
  try {
    // Equal seeds give equal inputs on every device.
    Harness harness(op, reduced_, device, seed);
    harness.reset(kFirstPoison);
    harness.run({&kernel, kernel.erased_heuristic(reduced_, device.info())});
    expected_ = copy_outputs(harness.first(), device);
    return true;
  } catch (const std::exception& error) {
    log(LogLevel::kWarning, str("the oracle ", kernel.name(), " failed: ", error.what()));
    return false;
  }
}

std::optional<Verdict> Oracle::check(const Candidate& candidate) {
  const DeviceInfo& info = harness_.device().info();
  if (!candidate.kernel->erased_supports(reduced_, info)) return std::nullopt;
  if (!candidate.kernel->erased_fits(reduced_, info, candidate.config)) return std::nullopt;
  return check_on(harness_, candidate, expected_, Check::kReduced);
}

}  // namespace attune::tuning
