// Which device a command means.
#include <algorithm>

#include "output/text.hpp"
#include "problems/command_context.hpp"

namespace attune::cli {
namespace {

std::string device_list(const Registry& registry) {
  std::vector<std::string> names;
  for (const Device* device : registry.devices()) names.push_back(str(device->info().id));
  return join(names, ", ");
}

}  // namespace

std::int64_t CommandContext::device_index() const {
  constexpr std::int64_t kMost = 1'000'000;
  return call_->options.integer("device", 0, kMost).value_or(0);
}

void CommandContext::check_platform_has_a_device(const OpInfo& op) const {
  std::string runs_on;
  for (const RegisteredKernel* kernel : registry().kernels(op.name)) {
    if (platform_ == kAutoPlatform || kernel->at.platform.view() != platform_) continue;
    const std::string_view backend = kernel->at.backend.view();
    const auto devices = registry().devices();
    if (backend == kAnyBackend || std::any_of(devices.begin(), devices.end(), [&](const Device* d) {
          return d->info().id.backend.view() == backend;
        })) {
      return;
    }
    runs_on = backend;
  }
  if (runs_on.empty()) return;
  const std::string why = registry().why_no_devices(runs_on);
  throw Unavailable(str("--platform ", platform_, ": runs on ", runs_on,
                        ", and there is no such device", why.empty() ? "" : ", ", why,
                        "; there is ", device_list(registry())));
}

const Device& CommandContext::device_for(const OpInfo& op) const {
  check_platform_has_a_device(op);
  if (backend_) return named_device();
  for (const Device* device : registry().devices()) {
    const DeviceId& id = device->info().id;
    if (id.backend == cpu_device().info().id.backend || id.index != device_index()) continue;
    if (!registry().kernels(op.name, platform_, id.backend.view()).empty()) return *device;
  }
  return named_device();
}

bool CommandContext::may_use(const Device& device) const {
  const DeviceId& id = device.info().id;
  return (!backend_ || id.backend.view() == *backend_) &&
         (!call_->options.flag("device") || id.index == device_index());
}

const Device& CommandContext::named_device() const {
  const std::string wanted = backend_.value_or("cpu");
  const std::vector<std::string> backends = registry().backends();
  const bool known = std::find(backends.begin(), backends.end(), wanted) != backends.end();
  if (!known) {
    throw UsageError(str("--backend '", wanted, "': expected ", join(backends, " or "),
                         did_you_mean(wanted, backends)));
  }
  for (const Device* device : registry().devices()) {
    const DeviceId& id = device->info().id;
    if (id.backend.view() == wanted && id.index == device_index()) return *device;
  }
  const std::string why = registry().why_no_devices(wanted);
  throw Unavailable(str("no device ", wanted, ":", device_index(), why.empty() ? "" : ", ", why,
                        "; there is ", device_list(registry())));
}

std::vector<const Device*> CommandContext::accelerators_like(const Device& like,
                                                             std::string_view list) const {
  const ShortName backend = like.info().id.backend;
  if (backend == cpu_device().info().id.backend) {
    throw Unavailable(
        str("--gpus ", list, ": there is no accelerator; there is ", device_list(registry())));
  }
  std::vector<const Device*> all, named;
  for (const Device* device : registry().devices()) {
    if (device->info().id.backend == backend) all.push_back(device);
  }
  if (list == "all" || list == "local") return all;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::int64_t number = 0;
    if (!parse_integer(list.substr(begin, end - begin), number)) {
      throw UsageError(
          str("--gpus '", list, "': expected all, local, or numbers joined by commas"));
    }
    const auto found = std::find_if(all.begin(), all.end(), [&](const Device* device) {
      return device->info().id.index == number;
    });
    if (found == all.end()) {
      throw Unavailable(str("--gpus ", list, ": no device ", backend, ':', number, "; there is ",
                            device_list(registry())));
    }
    if (std::find(named.begin(), named.end(), *found) == named.end()) named.push_back(*found);
    begin = end + 1;
  }
  return named;
}

/// The device that problems of a class were recorded on, when none is named; or null.
const Device* CommandContext::device_for(const OpInfo& op, const std::string& device_class) const {
  if (device_class.empty() || backend_) return &device_for(op);
  for (const Device* device : registry().devices()) {
    if (device->info().device_class == device_class) return device;
  }
  return nullptr;
}

std::string device_text(const Device& device) {
  const DeviceInfo& info = device.info();
  return str(info.id, ' ', info.name, ", ", count_text(info.cores, "core"));
}

}  // namespace attune::cli
