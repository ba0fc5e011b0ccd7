#include "plan.hpp"

#include <algorithm>

#include <attune/core/params.hpp>

#include "status.hpp"

namespace attune::c {
namespace {

std::string override_text(const Choice& choice) {
  std::string text = str("kernel=", choice.kernel->name());
  const Params params = choice.kernel->params(choice.config);
  if (!params.empty()) text += ',' + to_text(params);
  return text;
}

/// The most scratch memory of a kernel's configs that need at most `limit`.
std::size_t largest_workspace(const ErasedKernel& kernel, ProblemRef problem,
                              const DeviceInfo& device, std::size_t limit) {
  std::size_t largest = 0;
  const auto count = [&](const ConfigBlob& config) {
    const std::size_t bytes = kernel.erased_workspace_bytes(problem, config);
    if (bytes <= limit) largest = std::max(largest, bytes);
  };
  count(kernel.erased_heuristic(problem, device));
  for (const ConfigBlob& config : kernel.erased_candidates(problem, device)) count(config);
  return largest;
}

template <class Op>
std::size_t workspace_bound(const Plan<Op>& plan, const attune_plan& of, std::size_t limit) {
  const Context& context = of.context == nullptr ? default_context() : *of.context;
  const DeviceInfo& device = plan.device().info();
  const ProblemRef problem = ProblemRef::of<Op>(plan.problem());
  std::size_t bound = 0;
  for (const RegisteredKernel* kernel :
       context.registry().kernels(Op::kName, of.platform.view(), device.id.backend.view())) {
    if (kernel->kernel->erased_supports(problem, device)) {
      bound = std::max(bound, largest_workspace(*kernel->kernel, problem, device, limit));
    }
  }
  return bound;
}

}  // namespace

attune_plan* make_plan(const attune_call& how, attune_plan::AnyPlan plan) {
  std::string config = std::visit([](const auto& of) { return override_text(of.choice()); }, plan);
  return new attune_plan{.context = how.context != nullptr ? how.context->context : nullptr,
                         .platform = how.platform != nullptr ? how.platform : kAutoPlatform,
                         .plan = std::move(plan),
                         .config = std::move(config)};
}

std::span<std::byte> bytes_of(void* workspace, std::size_t bytes) {
  if (workspace == nullptr && bytes > 0) {
    throw InvalidArgument(str("workspace: NULL, but workspace_bytes is ", bytes));
  }
  return {static_cast<std::byte*>(workspace), bytes};
}

void refuse_with_slopes_or_layer(
    std::string_view op,
    std::initializer_list<std::pair<const char*, const attune_tensor*>> excluded) {
  for (const auto& [name, tensor] : excluded) {
    if (tensor == nullptr) continue;
    throw InvalidArgument(str(op, ": ", name, ": given with slopes or a layer, which exclude it"));
  }
}

}  // namespace attune::c

using namespace attune::c;  // NOLINT(google-build-using-namespace): these are its functions

void attune_plan_destroy(attune_plan* plan) noexcept { delete plan; }

size_t attune_plan_workspace_bytes(const attune_plan* plan) noexcept {
  if (plan == nullptr) return 0;
  return std::visit([](const auto& of) { return of.workspace_bytes(); }, plan->plan);
}

const char* attune_plan_config(const attune_plan* plan) noexcept {
  return plan == nullptr ? "" : plan->config.c_str();
}

attune_status attune_plan_workspace_bound(const attune_plan* plan, size_t limit,
                                          size_t* bytes) noexcept {
  return guarded([&] {
    require("plan", plan);
    require("bytes", bytes);
    *bytes =
        std::visit([&](const auto& of) { return workspace_bound(of, *plan, limit); }, plan->plan);
  });
}
