// Energy by NVML, which is loaded at run time: attune is built without it, and runs where there is
// none. Names and codes: NVIDIA, "NVML API Reference Guide", which keeps them from driver to
// driver.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <functional>
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
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  NvmlEnergy(std::string library, Clock now) : library_(std::move(library)), now_(std::move(now)) {}

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

  /// The counter moves on in ticks of up to 100 ms, so all is told from tick to tick. What the GPU
  /// took while it waited for the launches to be queued, and behind them for the tick, is taken
  /// off, at the idle power that the tick after that tells.
  double score(const ScoredLaunches& launches) const override {
    const Tick before = next_tick(launches.device);
    const double busy_us = launches.run();
    const Tick after = next_tick(launches.device);
    const Tick idle = next_tick(launches.device);
    const double idle_power = energy(after, idle) / std::max(time_us(after, idle), 1.0);
    const double idle_us = std::max(time_us(before, after) - busy_us, 0.0);
    constexpr double kMicrojoules = 1000;  // a millijoule
    return std::max(energy(before, after) - idle_power * idle_us, 0.0) * kMicrojoules /
           launches.count;
  }

 private:
  const Nvml& nvml() const {
    std::call_once(loaded_, [this] { nvml_.emplace(library_); });
    return *nvml_;
  }
  /// The counter when it had just moved on.
  struct Tick {
    unsigned long long millijoules;
    std::chrono::steady_clock::time_point time;
  };
  Tick next_tick(const Device& device) const {
    constexpr std::chrono::seconds kMostWait{2};
    const auto start = now_();
    const unsigned long long before = read(device);
    for (;;) {
      const unsigned long long millijoules = read(device);
      const auto time = now_();
      if (millijoules != before) return {millijoules, time};
      if (time - start > kMostWait) throw ExecutionError("NVML's counter of energy stands still");
    }
  }
  static double energy(const Tick& from, const Tick& to) {
    if (to.millijoules < from.millijoules)
      throw ExecutionError("NVML's counter of energy ran backwards");
    return static_cast<double>(to.millijoules - from.millijoules);
  }
  static double time_us(const Tick& from, const Tick& to) {
    return std::chrono::duration<double, std::micro>(to.time - from.time).count();
  }
  unsigned long long read(const Device& device) const {
    if (!nvml().failure().empty()) throw Unavailable(nvml().failure());
    unsigned long long millijoules = 0;
    std::string why;
    if (!nvml().read(uuid_of(device), millijoules, why)) throw ExecutionError(why);
    return millijoules;
  }

  const std::string library_;
  const Clock now_;
  mutable std::once_flag loaded_;
  mutable std::optional<Nvml> nvml_;
};

}  // namespace

std::shared_ptr<const Objective> make_energy_objective(
    std::string library, std::function<std::chrono::steady_clock::time_point()> now) {
  return std::make_shared<NvmlEnergy>(std::move(library), std::move(now));
}

}  // namespace attune
