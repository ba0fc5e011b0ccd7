#include "tuning/candidate_check.hpp"

#include <algorithm>

#include <attune/tuner/tuner.hpp>

namespace attune::cli {
namespace {

/// Throws Unsupported where no reference kernel takes the problem.
const RegisteredKernel& oracle_of(const CommandContext& command, const OpInfo& op,
                                  ProblemRef problem, const Device& device) {
  const RegisteredKernel* oracle = find_oracle(command.registry(), op.name, device);
  if (oracle == nullptr) throw Unsupported(str(op.name, " has no reference kernel"));
  const Support support =
      oracle->kernel->erased_supports(problem, oracle_device(*oracle, device).info());
  if (!support) throw Unsupported(str(oracle->kernel->name(), " declines it: ", support.reason()));
  return *oracle;
}

void run_once(Case& on, const ErasedKernel& kernel, const ConfigBlob& config,
              const Device& device) {
  on.reset(std::byte{0xff});
  Choice choice;
  choice.kernel = &kernel;
  choice.config = config;
  Executor::run_choice(on.problem(), on.args(), choice, device, nullptr);
  device.synchronize(nullptr);
}

void judge(const std::vector<OutputCheck>& outputs, const std::string& candidate,
           CandidateCheck& into) {
  ++into.checked;
  for (const OutputCheck& output : outputs) {
    into.worst_error = std::max(into.worst_error, output.error);
    into.tolerance =
        into.tolerance == 0 ? output.tolerance : std::min(into.tolerance, output.tolerance);
  }
  const auto bad =
      std::find_if(outputs.begin(), outputs.end(), [](const OutputCheck& o) { return !o.passed; });
  if (bad == outputs.end()) return;
  ++into.wrong;
  into.reasons.push_back(str(candidate, ": ", bad->name, ": error ", bad->error, ' ', bad->reason));
}

/// What the oracle computes for a case of `problem`, where it runs: equal seeds give equal inputs
/// on every device.
TensorMap expected_of(const CommandContext& command, const Target& target, ProblemRef problem) {
  const RegisteredKernel& oracle = oracle_of(command, *target.op, problem, *target.device);
  const Device& device = oracle_device(oracle, *target.device);
  const std::unique_ptr<Case> on = target.op->make_case(problem, device, command.seed());
  run_once(*on, *oracle.kernel, oracle.kernel->erased_heuristic(problem, device.info()), device);
  return copy_outputs(*on, device);
}

}  // namespace

CandidateCheck check_choice(const CommandContext& command, const Target& target,
                            const Choice& choice) {
  const Device& device = *target.device;
  const ErasedKernel& kernel = *choice.kernel;
  AnyProblem problem = target.op->reduced(target.problem);
  if (!kernel.erased_fits(problem, device.info(), choice.config)) problem = target.problem;
  const TensorMap expected = expected_of(command, target, problem);
  const std::unique_ptr<Case> on = target.op->make_case(problem, device, command.seed());
  CandidateCheck result;
  run_once(*on, kernel, choice.config, device);
  judge(on->compare(expected), str(kernel.name(), ' ', config_text(kernel, choice.config)), result);
  return result;
}

CandidateCheck check_candidates(const CommandContext& command, const Target& target,
                                const std::function<bool()>& stop) {
  const Device& device = *target.device;
  const DeviceInfo& info = device.info();
  const AnyProblem reduced = target.op->reduced(target.problem);
  const TensorMap expected = expected_of(command, target, reduced);
  const std::unique_ptr<Case> on = target.op->make_case(reduced, device, command.seed());
  const RegisteredKernel* oracle = find_oracle(command.registry(), target.op->name, device);

  CandidateCheck result;
  for (const RegisteredKernel* registered :
       command.registry().kernels(target.op->name, command.platform(), info.id.backend.view())) {
    const ErasedKernel& kernel = *registered->kernel;
    if (registered == oracle || !kernel.erased_supports(target.problem, info)) continue;
    for (const ConfigBlob& config : kernel.erased_candidates(target.problem, info)) {
      if (stop()) return result;
      if (!kernel.erased_fits(reduced, info, config)) continue;
      run_once(*on, kernel, config, device);
      judge(on->compare(expected), str(kernel.name(), ' ', config_text(kernel, config)), result);
    }
  }
  return result;
}

}  // namespace attune::cli
