// Devices "sim:0", ... with a simulated clock: how long a launch lasts follows from its problem and
// config alone, so that every process on every machine chooses alike, however busy it is. In real
// time a sample sleeps, for SIM_SAMPLE_US microseconds (0 when it is not set), without a core.
// SIM_DEVICES says how many devices there are; 1 when it is not set. SIM_CLASS is what the end of
// their class is; "8c" when it is not set. SIM_STARTS, where it is set, is a file that every process
// which registers the devices adds a line to. SIM_HOLD, where it is set, is a file without which no
// sample of sim:0 ends. Needs the op of the plugin row_softmax.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include <attune/core/device_class.hpp>
#include <attune/core/kernel.hpp>
#include <attune/core/plugin.hpp>

#include "plugin/row_softmax/row_softmax.hpp"

namespace simulated_fleet {
namespace {

using attune::DeviceInfo;

std::string environment(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

/// The class is "sim:<cores>c".
std::optional<DeviceInfo> describe_class(std::string_view device_class) {
  const std::vector<std::string_view> words = attune::split_device_class(device_class);
  std::int64_t cores = 0;
  if (words.size() != 2 || words[0] != "sim" ||
      !attune::read_class_number(words[1], "", "c", cores)) {
    return std::nullopt;
  }
  DeviceInfo info;
  info.id = {.backend = "sim", .index = 0};
  info.name = "simulated device";
  info.arch = "sim";
  info.cores = static_cast<int>(cores);
  info.device_class = device_class;
  return info;
}

/// Microseconds that the launches of this thread have lasted by the simulated clock.
thread_local double clock_us = 0;

/// Its memory is the host's, and its time is not.
class SimulatedDevice final : public attune::Device {
 public:
  explicit SimulatedDevice(int index)
      : info_(describe_class("sim:" + environment("SIM_CLASS", "8c")).value()) {
    info_.id.index = index;
  }

  const DeviceInfo& info() const noexcept override { return info_; }
  void* allocate(std::size_t bytes, void* stream) const override {
    return attune::cpu_device().allocate(bytes, stream);
  }
  void deallocate(void* pointer, void* stream) const noexcept override {
    attune::cpu_device().deallocate(pointer, stream);
  }
  void copy_to_device(void* to, const void* from, std::size_t bytes, void* stream) const override {
    attune::cpu_device().copy_to_device(to, from, bytes, stream);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes, void* stream) const override {
    attune::cpu_device().copy_to_host(to, from, bytes, stream);
  }
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) const override {
    attune::cpu_device().fill(to, value, bytes, stream);
  }
  void synchronize(void* /*stream*/) const override {}
  double time_us(attune::FunctionRef<void(void*, int)> launch, int repeats) const override {
    static const std::chrono::microseconds sample(
        std::atoi(environment("SIM_SAMPLE_US", "0").c_str()));
    static const std::string hold = environment("SIM_HOLD", "");
    while (info_.id.index == 0 && !hold.empty() && !std::filesystem::exists(hold)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const double begin = clock_us;
    for (int i = 0; i < repeats; ++i) launch(nullptr, i);
    std::this_thread::sleep_for(sample);
    return clock_us - begin;
  }

 private:
  DeviceInfo info_;
};

struct RowsConfig {
  using Op = row_softmax::RowSoftmax;
  int rows_at_once = 1;
  friend constexpr bool operator==(const RowsConfig&, const RowsConfig&) = default;
  static constexpr auto axes() {
    return std::tuple{
        attune::launch_axis("rows_at_once", &RowsConfig::rows_at_once, {1, 2, 4, 8, 16})};
  }
};

/// Which config is best depends on the problem: a launch lasts long where its rows at once are far
/// from 1 + cols mod 16.
class Rows final : public attune::Kernel<RowsConfig> {
 public:
  std::string_view name() const noexcept override { return "sim.row_softmax"; }
  int version() const noexcept override { return 1; }
  attune::Support supports(const Problem&, const DeviceInfo&) const override {
    return attune::Support::yes();
  }
  RowsConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  void run(const Problem& problem, const Args& args, const RowsConfig& config,
           const attune::LaunchSite&) const override {
    row_softmax::softmax_in_double(problem, args);
    const double off = std::abs(config.rows_at_once - (1 + static_cast<int>(problem.cols % 16)));
    clock_us += 200 + static_cast<double>(problem.rows) * (1 + off);
  }
};

int device_count() { return std::atoi(environment("SIM_DEVICES", "1").c_str()); }

void register_devices(attune::Registry& registry) {
  if (const std::string starts = environment("SIM_STARTS", ""); !starts.empty()) {
    std::ofstream(starts, std::ios::app) << "started\n";
  }
  for (int index = 0; index < device_count(); ++index) {
    registry.add(std::unique_ptr<const attune::Device>(std::make_unique<SimulatedDevice>(index)));
  }
}

void register_kernels(attune::Registry& registry) {
  registry.add(std::make_unique<Rows>(), {.platform = "sim", .backend = "sim", .priority = 10});
}

std::string why_no_devices() { return device_count() > 0 ? "" : "SIM_DEVICES is 0"; }

}  // namespace
}  // namespace simulated_fleet

extern "C" const char* attune_plugin_abi() { return attune::kPluginAbi; }
extern "C" void attune_register(attune::Registry& registry) {
  using namespace simulated_fleet;
  registry.add(attune::Backend{.name = "sim",
                               .register_devices = register_devices,
                               .register_kernels = register_kernels,
                               .why_no_devices = why_no_devices,
                               .describe_device_class = describe_class,
                               .build = "simulated code"});
}
