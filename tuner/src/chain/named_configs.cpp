// Configs by name: overrides, overlays, pins and rows all come as names, which are turned into
// candidates here; and the two tiers that are given with a call.
#include <attune/core/error.hpp>

#include "chain/scopes.hpp"
#include "chain/tiers.hpp"

namespace attune::chain {
namespace {

/// Why the kernel of this name, which is not among those that may serve the request, is not.
std::string why_not_allowed(const State& state, const Call& call, const std::string& name) {
  const RegisteredKernel* found = state.registry.find_kernel(name);
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const RegisteredKernel* entry : state.registry.kernels(call.op.name))
      names.emplace_back(entry->kernel->name());
    return str("no kernel '", name, "' is loaded", did_you_mean(name, names));
  }
  if (found->kernel->op() != call.op.kernel_op) {
    return str("kernel '", name, "' computes ", found->kernel->op(), ", not ", call.op.kernel_op);
  }
  return str("kernel '", name, "' has platform ", found->at.platform, " and backend ",
             found->at.backend, ", asked for were ", call.request.platform, " and ",
             call.info().id.backend);
}

/// `params`, and what they leave out as the kernel's heuristic has it.
Params completed(const Call& call, const ErasedKernel& kernel, const Params& params) {
  Params all = params;
  for (Param& param : kernel.params(kernel.erased_heuristic(call.problem, call.info()))) {
    if (find_param(params, param.name) == nullptr) all.push_back(std::move(param));
  }
  return all;
}

Resolved try_kernel(Call& call, const ErasedKernel& kernel, const Params& params) {
  if (const Support support = kernel.erased_supports(call.problem, call.info()); !support) {
    return {std::nullopt, str(kernel.name(), ": ", support.reason())};
  }
  Candidate candidate{&kernel, {}};
  try {
    candidate.config = kernel.parse(completed(call, kernel, params));
  } catch (const InvalidArgument& error) {
    return {std::nullopt, str(kernel.name(), ": ", error.what())};
  }
  if (const Support fits = kernel.erased_fits(call.problem, call.info(), candidate.config); !fits) {
    return {std::nullopt, str(describe(candidate), " does not fit: ", fits.reason())};
  }
  if (const std::string why = call.why_too_large(candidate); !why.empty()) {
    return {std::nullopt, str(describe(candidate), ' ', why)};
  }
  return {candidate, ""};
}

bool is_for(const State& state, const Call& call, const scopes::Overlay& overlay) {
  const OpInfo* op = state.registry.find_op(overlay.op);
  if (op == nullptr || op->kernel_op != call.op.kernel_op) return false;
  return !overlay.problem || op->values(op->parse(*overlay.problem)) == call.key.problem;
}

}  // namespace

Resolved resolve(const State& state, Call& call, const NamedConfig& named) {
  std::string reasons;
  for (const RegisteredKernel* entry : serving(state, call)) {
    if (!named.kernel.empty() && entry->kernel->name() != named.kernel) continue;
    Resolved resolved = try_kernel(call, *entry->kernel, named.params);
    if (resolved.candidate || !named.kernel.empty()) return resolved;
    reasons += "\n  " + resolved.reason;
  }
  if (!named.kernel.empty()) return {std::nullopt, why_not_allowed(state, call, named.kernel)};
  return {std::nullopt, str("no kernel of ", call.op.name, " takes it:",
                            reasons.empty() ? " none may serve this request" : reasons)};
}

Resolved resolve_row(const State& state, Call& call, const std::string& kernel,
                     const std::string& config) {
  try {
    return resolve(state, call, {kernel, parse_params(config)});
  } catch (const InvalidArgument& error) {
    return {std::nullopt, str(kernel, ": ", error.what())};
  }
}

Answer ask_override(State& state, Call& call) {
  if (call.request.config == nullptr) return Answer::miss("none given");
  const NamedConfig& named = *call.request.config;
  const Resolved resolved = resolve(state, call, named);
  if (resolved.candidate)
    return Answer::chosen(Tier::kOverride, *resolved.candidate, "given with the call");
  Answer answer =
      Answer::refused(str(named.kernel, named.kernel.empty() ? "" : " ", to_text(named.params)),
                      str("config: ", resolved.reason));
  answer.is_error = true;
  return answer;
}

Answer select_override(State& state, Call& call) {
  Answer answer = ask_override(state, call);
  if (answer.is_error) throw InvalidArgument(str(call.called_as(), ": ", answer.reason));
  return answer;
}

Answer ask_overlay(State& state, Call& call) {
  Answer none = Answer::miss("no scope active");
  for (const scopes::Scope* scope = scopes::active; scope != nullptr; scope = scope->outer.get()) {
    if (!scope->overlay || !is_for(state, call, *scope->overlay)) continue;
    const Resolved resolved = resolve(state, call, scope->overlay->config);
    if (resolved.candidate) {
      Answer answer = Answer::chosen(Tier::kOverlay, *resolved.candidate, "an overlay is in scope");
      answer.refusals = std::move(none.refusals);
      return answer;
    }
    none.refusals.push_back(resolved.reason);
    none.reason = str("no overlay in scope fits; ", resolved.reason);
  }
  return none;
}

}  // namespace attune::chain
