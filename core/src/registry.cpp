#include <algorithm>
#include <cctype>
#include <set>

#include <attune/core/device_class.hpp>
#include <attune/core/error.hpp>
#include <attune/core/parallel_for.hpp>
#include <attune/core/registry.hpp>

namespace attune {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

/// Whether a config's text, "name=value,...", can say it.
bool is_sayable(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isgraph(c) != 0 && c != '=' && c != ',';
  });
}

void check_axes(const ErasedKernel& kernel) {
  for (const AxisInfo& axis : kernel.axes()) {
    const std::string what = str("kernel '", kernel.name(), "': axis '", axis.name, "'");
    if (!is_sayable(axis.name) || axis.name == "kernel")
      throw InvalidArgument(what + ": expected another name, without '=', ',' and blanks");
    std::set<std::string_view> values;
    for (const std::string& value : axis.values) {
      if (!is_sayable(value))
        throw InvalidArgument(str(what, ": value '", value, "': expected no '=', ',' or blank"));
      if (!values.insert(value).second)
        throw InvalidArgument(str(what, ": value ", value, " stands twice"));
    }
  }
}

}  // namespace

Registry::Registry(HostThreads threads) {
  owned_devices_.push_back(make_cpu_device(std::move(threads)));
  devices_.push_back(owned_devices_.back().get());
}

void Registry::add(OpInfo op) {
  for (const auto& [name, other] : ops_) {
    if (name == op.name) throw InvalidArgument(str("op '", op.name, "' is registered twice"));
    if (other.id == op.id && other.kernel_op != op.kernel_op) {
      throw InvalidArgument(str("op '", op.name, "' has the same id as '", name, "': rename it"));
    }
  }
  std::string name(op.name);
  ops_.emplace(std::move(name), std::move(op));
}

void Registry::add(std::unique_ptr<const ErasedKernel> kernel, const Placement& at) {
  if (kernel == nullptr) throw InvalidArgument("a kernel to register is null");
  const std::string name(kernel->name());
  if (find_op(kernel->op()) == nullptr) {
    throw InvalidArgument(str("kernel '", name, "': op '", kernel->op(), "' is not registered"));
  }
  if (find_kernel(name) != nullptr)
    throw InvalidArgument(str("kernel '", name, "' is registered twice"));
  if (at.platform.empty() || at.platform == kAutoPlatform || at.platform == kAnyBackend) {
    throw InvalidArgument(
        str("kernel '", name, "': platform '", at.platform, "' is a reserved word"));
  }
  if (at.backend.empty() || at.backend == kAutoPlatform) {
    throw InvalidArgument(
        str("kernel '", name, "': backend '", at.backend, "' is a reserved word"));
  }
  check_axes(*kernel);
  const auto behind =
      std::find_if(kernels_.begin(), kernels_.end(),
                   [&](const RegisteredKernel& other) { return other.at.priority < at.priority; });
  kernels_.insert(behind, RegisteredKernel{at, std::move(kernel)});
}

void Registry::add(std::unique_ptr<const Device> device) {
  if (device == nullptr) throw InvalidArgument("a device to register is null");
  const DeviceId id = device->info().id;
  if (find_device(id) != nullptr)
    throw InvalidArgument(str("device '", id, "' is registered twice"));
  devices_.push_back(device.get());
  owned_devices_.push_back(std::move(device));
}

void Registry::add(Backend backend) {
  if (backend.name.empty() || backend.name == kAnyBackend || backend.name == kAutoPlatform) {
    throw InvalidArgument(str("backend '", backend.name, "': its name is a reserved word"));
  }
  if (find_backend(backend.name) != nullptr)
    throw InvalidArgument(str("backend '", backend.name, "' is registered twice"));
  const Backend& added = backends_.emplace_back(std::move(backend));
  // Copied: what they register may be a backend, too.
  const auto register_devices = added.register_devices;
  const auto register_kernels = added.register_kernels;
  if (register_devices != nullptr) register_devices(*this);
  if (register_kernels != nullptr) register_kernels(*this);
}

const Backend* Registry::find_backend(std::string_view name) const noexcept {
  for (const Backend& backend : backends_) {
    if (backend.name == name) return &backend;
  }
  return nullptr;
}

const OpInfo* Registry::find_op(std::string_view name) const noexcept {
  const auto exact = ops_.find(name);
  if (exact != ops_.end()) return &exact->second;
  for (const auto& [known, op] : ops_) {
    if (std::equal(
            known.begin(), known.end(), name.begin(), name.end(),
            [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); })) {
      return &op;
    }
  }
  return nullptr;
}

const Device* Registry::find_device(const DeviceId& id) const noexcept {
  for (const Device* device : devices_) {
    if (device->info().id == id) return device;
  }
  return nullptr;
}

const RegisteredKernel* Registry::find_kernel(std::string_view name) const noexcept {
  for (const RegisteredKernel& entry : kernels_) {
    if (entry.kernel->name() == name) return &entry;
  }
  return nullptr;
}

const OpInfo& Registry::op(std::string_view name) const {
  if (const OpInfo* found = find_op(name)) return *found;
  std::vector<std::string> names;
  for (const auto& [known, info] : ops_) names.push_back(known);
  throw Unavailable(
      str("no op '", name, "'", did_you_mean(lower(name), names), "; registered: ", joined(names)));
}

const Device& Registry::device(const DeviceId& id) const {
  if (const Device* found = find_device(id)) return *found;
  std::vector<std::string> names;
  for (const Device* device : devices_) names.push_back(str(device->info().id));
  throw Unavailable(str("no device '", id, "'; present: ", joined(names)));
}

std::vector<const RegisteredKernel*> Registry::kernels(std::string_view op) const {
  const OpInfo* info = find_op(op);
  std::vector<const RegisteredKernel*> found;
  for (const RegisteredKernel& entry : kernels_) {
    if (info != nullptr && entry.kernel->op() == info->kernel_op) found.push_back(&entry);
  }
  return found;
}

std::vector<const RegisteredKernel*> Registry::kernels(std::string_view op,
                                                       std::string_view platform,
                                                       std::string_view backend) const {
  const std::string wanted = lower(platform);
  const std::vector<std::string> known = platforms();
  if (wanted != kAutoPlatform && std::find(known.begin(), known.end(), wanted) == known.end()) {
    throw Unavailable(str("no platform '", platform, "'", did_you_mean(wanted, known),
                          "; registered: ", joined(known)));
  }
  std::vector<const RegisteredKernel*> found;
  for (const RegisteredKernel* entry : kernels(op)) {
    const bool platform_fits = wanted == kAutoPlatform || entry->at.platform.view() == wanted;
    const bool backend_fits =
        entry->at.backend.view() == kAnyBackend || entry->at.backend.view() == backend;
    if (platform_fits && backend_fits) found.push_back(entry);
  }
  return found;
}

std::vector<const OpInfo*> Registry::ops() const {
  std::vector<const OpInfo*> all;
  for (const auto& [name, op] : ops_) all.push_back(&op);
  return all;
}

std::vector<std::string> Registry::platforms() const {
  std::set<std::string> names;
  for (const RegisteredKernel& entry : kernels_) names.emplace(entry.at.platform.view());
  return {names.begin(), names.end()};
}

std::vector<std::string> Registry::backends() const {
  std::set<std::string> names;
  for (const Device* device : devices_) names.emplace(device->info().id.backend.view());
  for (const Backend& backend : backends_) names.emplace(backend.name);
  return {names.begin(), names.end()};
}

std::string Registry::why_no_devices(std::string_view name) const {
  const Backend* backend = find_backend(name);
  return backend == nullptr || backend->why_no_devices == nullptr ? "" : backend->why_no_devices();
}

std::vector<std::string> Registry::builds() const {
  std::vector<std::string> builds;
  for (const Backend& backend : backends_) {
    if (!backend.build.empty()) builds.push_back(backend.build);
  }
  return builds;
}

std::optional<DeviceInfo> Registry::describe_device_class(std::string_view device_class) const {
  const std::string_view name = device_class.substr(0, device_class.find(':'));
  if (name == cpu_device().info().id.backend.view()) return describe_cpu_class(device_class);
  const Backend* backend = find_backend(name);
  if (backend == nullptr || backend->describe_device_class == nullptr) return std::nullopt;
  return backend->describe_device_class(device_class);
}

}  // namespace attune
