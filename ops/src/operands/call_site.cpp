#include "call_site.hpp"

namespace attune::ops {
namespace {

NamedConfig parse_override(std::string_view op, std::string_view text) {
  try {
    return NamedConfig::parse(text);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(str(op, ": config: ", error.what()));
  }
}

}  // namespace

CallSite::CallSite(std::string_view op, std::string_view target, const CallOptions& options,
                   const DeviceId& device)
    : context_(options.context != nullptr ? options.context : &default_context()) {
  if (options.backend != kAutoPlatform && options.backend != device.backend) {
    throw InvalidArgument(
        str(op, ": backend: ", options.backend, " asked for, but q is on ", device));
  }
  request_.device = &context_->registry().device(device);
  request_.platform = options.platform;
  request_.stream = options.stream;
  request_.memory = {options.workspace, options.workspace_allocator};
  request_.workspace_limit = options.workspace_limit;
  request_.constraints = options.constraints;
  if (op != target) request_.called_as = op;
  if (!options.config.empty()) {
    config_ = parse_override(op, options.config);
    request_.config = &*config_;
  }
}

}  // namespace attune::ops
