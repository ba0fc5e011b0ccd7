#include <utility>

#include <attune/core/context.hpp>
#include <attune/core/environment.hpp>
#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

namespace attune {

Context::Context(Registry registry, const MakeSelector& make_selector)
    : registry_(std::make_unique<Registry>(std::move(registry))),
      events_(std::make_unique<EventBus>()),
      selector_(make_selector(*registry_, *events_)),
      logs_commands_(read_environment("ATTUNE_LOG_CMD").value_or("0") != "0"),
      cpu_device_(&cpu_device()),
      host_(registry_->devices().front()) {}

Context::~Context() = default;

Choice Context::select(ProblemRef problem, const Request& request) const {
  const Request here = on_own_device(request);
  const Choice choice =
      selector_->select(selection_key(registry_->op(problem.op), problem, here), problem, here);
  if (logs_commands_) log_command(problem, choice, here);
  return choice;
}

void Context::log_command(ProblemRef problem, const Choice& choice, const Request& request) const {
  const std::string_view name = request.called_as.empty() ? problem.op : request.called_as;
  log(LogLevel::kInfo,
      reproducing_command(registry_->op(name), choice, problem, request.device->info().id));
}

std::string call_label(std::string_view op, const Choice& choice, std::string_view problem) {
  return str("attune#", op, "@v", choice.kernel->version(), ":", problem);
}

std::string reproducing_command(const OpInfo& op, const Choice& choice, ProblemRef problem,
                                const DeviceId& device) {
  std::string command =
      str("attune run ", op.name, " ", op.text(problem, false), " --backend ", device.backend,
          " --device ", device.index, " --config kernel=", choice.kernel->name());
  const Params params = choice.kernel->params(choice.config);
  if (!params.empty()) command += "," + to_text(params);
  return command;
}

}  // namespace attune
