// Energy by NVML, which is loaded at run time: attune is built without it, and runs where there is
// none. Names and codes: NVIDIA, "NVML API Reference Guide", which keeps them from driver to
// driver.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/tuner/objective.hpp>

namespace attune {
namespace {

constexpr int kSuccess = 0;
using NvmlDevice = void*;

/// The part of NVML that is used. Never unloaded: the driver does not expect it.
class Nvml {
 public:
  explicit Nvml(const std::string& library) {
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* const why = dlerror();
      failure_ = str("NVML is not there: ", why == nullptr ? library : why);
      return;
    }
    int (*init)() = nullptr;
    if (!find(handle, "nvmlInit_v2", init) || !find(handle, "nvmlErrorString", error_string_) ||
        !find(handle, "nvmlDeviceGetHandleByUUID", handle_by_uuid_) ||
        !find(handle, "nvmlDeviceGetTotalEnergyConsumption", total_energy_)) {
      return;
    }
    if (const int code = init(); code != kSuccess) failure_ = describe("nvmlInit_v2", code);
  }

  /// Why nothing can be read, or "".
  const std::string& failure() const { return failure_; }

  /// Millijoules since the driver was loaded. False, with the reason in `why`, where it is not
  /// told.
  bool read(const std::string& uuid, unsigned long long& millijoules, std::string& why) const {
    NvmlDevice device = nullptr;
    if (const int code = handle_by_uuid_(uuid.c_str(), &device); code != kSuccess) {
      why = describe("nvmlDeviceGetHandleByUUID", code);
      return false;
    }
    if (const int code = total_energy_(device, &millijoules); code != kSuccess) {
      why = describe("nvmlDeviceGetTotalEnergyConsumption", code);
      return false;
    }
    return true;
  }

 private:
  template <class Function>
  bool find(void* handle, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(handle, name));  // as POSIX has it
    if (function == nullptr) failure_ = str("NVML has no ", name);
    return function != nullptr;
  }
  std::string describe(std::string_view function, int code) const {
    return str(function, ": ", error_string_(code));
  }

  std::string failure_;
  const char* (*error_string_)(int code) = nullptr;
  int (*handle_by_uuid_)(const char* uuid, NvmlDevice* device) = nullptr;
  int (*total_energy_)(NvmlDevice device, unsigned long long* millijoules) = nullptr;
};

/// "GPU-8b1ff2...": the device's feature says it. "" for a device that has none.
std::string uuid_of(const Device& device) {
  constexpr std::string_view kPrefix = "uuid:";
  for (const std::string& feature : device.info().features) {
    if (feature.starts_with(kPrefix)) return feature.substr(kPrefix.size());
  }
  return "";
}

class NvmlEnergy final : public Objective {
 public:
  explicit NvmlEnergy(std::string library) : library_(std::move(library)) {}

  std::string_view name() const noexcept override { return "energy"; }
  std::string_view unit() const noexcept override { return "uJ"; }
  double least_sample_us() const noexcept override { return 100'000; }

  std::string why_unavailable(const Device& device) const override {
    const std::string uuid = uuid_of(device);
    if (uuid.empty()) return str(device.info().id, " is not a GPU of NVIDIA's");
    if (!nvml().failure().empty()) return nvml().failure();
    unsigned long long millijoules = 0;
    std::string why;
    return nvml().read(uuid, millijoules, why) ? "" : str(device.info().id, ": ", why);
  }

  /// The counter moves on in ticks of up to 100 ms: the batch starts at one, and of the time from
  /// its end to the next one the GPU's idle power, which the tick behind that tells, is taken off.
  double score(const ScoredLaunches& launches) const override {
    const Tick before = next_tick(launches.device);
    launches.run();
    const Tick after = next_tick(launches.device);
    const Tick idle = next_tick(launches.device);
    if (after.millijoules < before.millijoules || idle.millijoules < after.millijoules)
      throw ExecutionError("NVML's counter of energy ran backwards");
    const double waited = static_cast<double>(after.readings) / idle.readings;
    const double taken = static_cast<double>(after.millijoules - before.millijoules) -
                         waited * static_cast<double>(idle.millijoules - after.millijoules);
    constexpr double kMicrojoules = 1000;  // a millijoule
    return std::max(taken, 0.0) * kMicrojoules / launches.count;
  }

 private:
  const Nvml& nvml() const {
    std::call_once(loaded_, [this] { nvml_.emplace(library_); });
    return *nvml_;
  }
  /// The counter when it had just moved on, and after how many readings, which all take as long.
  struct Tick {
    unsigned long long millijoules;
    int readings;
  };
  Tick next_tick(const Device& device) const {
    constexpr std::chrono::seconds kMostWait{2};
    const auto start = std::chrono::steady_clock::now();
    const unsigned long long before = read(device);
    for (int readings = 2;; ++readings) {
      if (const unsigned long long now = read(device); now != before) return {now, readings};
      if (std::chrono::steady_clock::now() - start > kMostWait)
        throw ExecutionError("NVML's counter of energy stands still");
    }
  }
  unsigned long long read(const Device& device) const {
    if (!nvml().failure().empty()) throw Unavailable(nvml().failure());
    unsigned long long millijoules = 0;
    std::string why;
    if (!nvml().read(uuid_of(device), millijoules, why)) throw ExecutionError(why);
    return millijoules;
  }

  const std::string library_;
  mutable std::once_flag loaded_;
  mutable std::optional<Nvml> nvml_;
};

}  // namespace

std::shared_ptr<const Objective> make_energy_objective(std::string library) {
  return std::make_shared<NvmlEnergy>(std::move(library));
}

}  // namespace attune
