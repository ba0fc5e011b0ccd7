#include <utility>

#include <attune/core/context.hpp>
#include <attune/core/error.hpp>

namespace attune {

Context::Context(Registry registry, const MakeSelector& make_selector)
    : registry_(std::make_unique<Registry>(std::move(registry))),
      events_(std::make_unique<EventBus>()),
      selector_(make_selector(*registry_, *events_)) {}

Context::~Context() = default;

Choice Context::select(ProblemRef problem, const Request& request) const {
  return selector_->select(selection_key(registry_->op(problem.op), problem, request), problem,
                           request);
}

std::string config_text(const ErasedKernel& kernel, const ConfigBlob& config) {
  const Params params = kernel.params(config);
  return params.empty() ? "default" : to_text(params);
}

std::string call_label(const OpInfo& op, const Choice& choice, ProblemRef problem) {
  return str("attune#", op.name, "@v", choice.kernel->version(), ":", op.text(problem, false));
}

}  // namespace attune
