// The registry: which ops, kernels and devices there are. Filled by explicit calls, then frozen by
// the Context that takes it; nothing registers itself.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <attune/core/device.hpp>
#include <attune/core/kernel.hpp>
#include <attune/core/op.hpp>
#include <attune/core/short_name.hpp>

namespace attune {

class Registry;

/// Where a kernel stands: how it is implemented, what it runs on, and its rank among equals.
struct Placement {
  ShortName platform;         // "cuda", "simd", "reference", or a user's own
  ShortName backend = "any";  // of the devices it runs on; "any" matches all
  int priority = 0;  // higher first: decides heuristics, before what kernels expect of themselves
                     // (Kernel::expected_us), and listings, never a tuned choice
};

/// The platform that answers "what is right": tuners check against it, and it competes only when
/// nothing else supports a problem.
inline constexpr std::string_view kReferencePlatform = "reference";
/// In a request: every platform competes.
inline constexpr std::string_view kAutoPlatform = "auto";
inline constexpr std::string_view kAnyBackend = "any";

struct RegisteredKernel {
  Placement at;
  std::unique_ptr<const ErasedKernel> kernel;
};

/// What kernels run on: devices of one name, the kernels that come with them, and what there is to
/// say of both where there are none. Members may be null.
struct Backend {
  std::string name;                               // of its devices' ids: "gpu"
  void (*register_devices)(Registry&) = nullptr;  // those that are present
  void (*register_kernels)(Registry&) = nullptr;  // their ops must be registered
  /// Why no device of it is present ("no CUDA driver"); "" when one is.
  std::string (*why_no_devices)() = nullptr;
  /// What kernels ask of a device, read from its class (DeviceInfo::device_class), so that a stored
  /// config can be held against its kernel on any machine. Nothing for a class that it does not
  /// know.
  std::optional<DeviceInfo> (*describe_device_class)(std::string_view device_class) = nullptr;
  std::string build =
      {};  // what was compiled for it: "GPU code 90a-real"; "" when that goes without saying
};

class Registry {
 public:
  Registry() : devices_{&cpu_device()} {}
  /// With a host that keeps to `threads` (make_cpu_device()).
  explicit Registry(HostThreads threads);

  /// Throws InvalidArgument when an op of that name is there.
  void add(OpInfo op);
  template <class Op>
  void add_op() {
    add(op_info<Op>());
  }
  template <class Alias>
  void add_alias() {
    add(alias_info<Alias>());
  }

  /// Throws InvalidArgument when the kernel's op is not registered, its name is taken, platform or
  /// backend empty or reserved ("auto"; "any" as a platform), or an axis none that texts can say.
  void add(std::unique_ptr<const ErasedKernel> kernel, const Placement& at);

  /// Throws InvalidArgument when a device with that id is there.
  void add(std::unique_ptr<const Device> device);

  /// Adds a backend, its devices and its kernels. Throws InvalidArgument when a backend of that
  /// name is there, and what adding those throws.
  void add(Backend backend);

  /// Throws Unavailable, listing what there is. Names are not case-sensitive.
  const OpInfo& op(std::string_view name) const;
  const Device& device(const DeviceId& id) const;

  const OpInfo* find_op(std::string_view name) const noexcept;
  const Device* find_device(const DeviceId& id) const noexcept;
  const RegisteredKernel* find_kernel(std::string_view name) const noexcept;

  /// Kernels of an op (or of the one it lowers to), best priority first, then in the order of
  /// registration.
  std::vector<const RegisteredKernel*> kernels(std::string_view op) const;

  /// Those that stand under `platform` ("auto": all) and run on `backend`. Throws Unavailable when
  /// no kernel of any op has that platform, listing those that do.
  std::vector<const RegisteredKernel*> kernels(std::string_view op, std::string_view platform,
                                               std::string_view backend) const;

  std::vector<const OpInfo*> ops() const;                                 // by name
  const std::vector<const Device*>& devices() const { return devices_; }  // the host first
  std::vector<std::string> platforms() const;                             // of all kernels, sorted
  /// Names of backends and of all devices' backends, sorted.
  std::vector<std::string> backends() const;

  /// Why no device of that backend is present, as the backend says it; "" when one is, and when no
  /// backend of that name is registered.
  std::string why_no_devices(std::string_view backend) const;
  /// What was compiled for each backend, where that is to be said.
  std::vector<std::string> builds() const;
  /// A device of that class, as the host or its backend reads it. Nothing when none does.
  std::optional<DeviceInfo> describe_device_class(std::string_view device_class) const;

 private:
  const Backend* find_backend(std::string_view name) const noexcept;

  std::map<std::string, OpInfo, std::less<>> ops_;
  std::vector<Backend> backends_;
  std::vector<RegisteredKernel> kernels_;
  std::vector<std::unique_ptr<const Device>> owned_devices_;
  std::vector<const Device*> devices_;  // the host, then the owned ones
};

}  // namespace attune
