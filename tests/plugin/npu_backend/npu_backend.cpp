// A backend from a plugin: devices "npu:0", ... of an accelerator that this machine only pretends
// to have, a kernel that runs on them, and what is to be said where there is none. NPU_DEVICES says
// how many there are; 1 when it is not set. Needs the op of the plugin row_softmax.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>

#include <attune/core/device_class.hpp>
#include <attune/core/kernel.hpp>
#include <attune/core/plugin.hpp>

#include "plugin/row_softmax/row_softmax.hpp"

namespace npu_backend {
namespace {

using attune::DeviceInfo;

/// The class is "npu:<cores>c".
std::optional<DeviceInfo> describe_npu_class(std::string_view device_class) {
  const std::vector<std::string_view> words = attune::split_device_class(device_class);
  std::int64_t cores = 0;
  if (words.size() != 2 || !attune::read_class_number(words[1], "", "c", cores))
    return std::nullopt;
  DeviceInfo info;
  info.id = {.backend = "npu", .index = 0};
  info.name = "pretended NPU";
  info.arch = "npu";
  info.cores = static_cast<int>(cores);
  info.device_class = device_class;
  return info;
}

/// Its memory is the host's.
class Npu final : public attune::Device {
 public:
  explicit Npu(int index) : info_(*describe_npu_class("npu:8c")) { info_.id.index = index; }

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
    return attune::cpu_device().time_us(launch, repeats);
  }

 private:
  DeviceInfo info_;
};

struct RowsConfig {
  using Op = row_softmax::RowSoftmax;
  friend constexpr bool operator==(const RowsConfig&, const RowsConfig&) = default;
  static constexpr auto axes() { return std::tuple{}; }
};

class Rows final : public attune::Kernel<RowsConfig> {
 public:
  std::string_view name() const noexcept override { return "npu.row_softmax"; }
  int version() const noexcept override { return 1; }
  attune::Support supports(const Problem&, const DeviceInfo&) const override {
    return attune::Support::yes();
  }
  RowsConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  void run(const Problem& problem, const Args& args, const RowsConfig&,
           const attune::LaunchSite&) const override {
    for (std::int64_t row = 0; row < problem.rows; ++row) {
      const float* x = row_softmax::row_of(args.x, row);
      float* y = row_softmax::row_of(args.y, row);
      const float largest = *std::max_element(x, x + problem.cols);
      double sum = 0;
      for (std::int64_t c = 0; c < problem.cols; ++c) sum += y[c] = std::exp(x[c] - largest);
      for (std::int64_t c = 0; c < problem.cols; ++c) y[c] = static_cast<float>(y[c] / sum);
    }
  }
};

int device_count() {
  const char* const count = std::getenv("NPU_DEVICES");
  return count == nullptr ? 1 : std::atoi(count);
}

void register_devices(attune::Registry& registry) {
  for (int index = 0; index < device_count(); ++index)
    registry.add(std::unique_ptr<const attune::Device>(std::make_unique<Npu>(index)));
}

void register_kernels(attune::Registry& registry) {
  registry.add(std::make_unique<Rows>(), {.platform = "npu", .backend = "npu", .priority = 10});
}

std::string why_no_devices() { return device_count() > 0 ? "" : "no NPU driver"; }

}  // namespace
}  // namespace npu_backend

extern "C" const char* attune_plugin_abi() { return attune::kPluginAbi; }
extern "C" void attune_register(attune::Registry& registry) {
  using namespace npu_backend;
  registry.add(attune::Backend{.name = "npu",
                               .register_devices = register_devices,
                               .register_kernels = register_kernels,
                               .why_no_devices = why_no_devices,
                               .describe_device_class = describe_npu_class,
                               .build = "NPU code 8c"});
}
