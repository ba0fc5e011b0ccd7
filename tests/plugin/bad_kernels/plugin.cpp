// The kernels of the host. BAD_KERNELS in the environment names the bad ones to register, joined by
// commas; without it all are. "twins" among them adds two devices, "whole" a kernel that takes no reduced
// problem. With DOUBLING_LAUNCHES=FILE each process adds the name of each bad kernel that it runs, once,
// and with DOUBLING_COMPARE_MS=N outputs of a whole problem take so long to compare.
#include <string>

#include <attune/core/plugin.hpp>

#include "kernels.hpp"

namespace doubling {
namespace {

void run_once(const DoublingProblem& problem, const DoublingArgs& args, const LaunchSite&) {
  run_well(problem, args);
  asm volatile("" : : "r"(args.y) : "memory");
}

/// Two accelerators, for as long as nobody looks closely: the host under two other names.
class Twin final : public attune::Device {
 public:
  explicit Twin(int index) : info_(attune::cpu_device().info()) {
    info_.id = {.backend = "twin", .index = index};
    info_.device_class = "twin";
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
    return attune::cpu_device().time_us(launch, repeats);
  }

 private:
  DeviceInfo info_;
};

}  // namespace
}  // namespace doubling

extern "C" const char* attune_plugin_abi() { return attune::kPluginAbi; }
extern "C" void attune_register(attune::Registry& registry) {
  using namespace doubling;
  registry.add_op<Doubling>();
  registry.add(std::make_unique<Reference>(), {.platform = "reference", .backend = "any"});
  registry.add(std::make_unique<Good>("good.doubling", run_once),
               {.platform = "good", .backend = "cpu", .priority = 100});
  if (std::getenv("BAD_KERNELS") != nullptr && is_wanted("twins")) {
    for (const int index : {0, 1})
      registry.add(std::unique_ptr<const attune::Device>(std::make_unique<Twin>(index)));
    registry.add(std::make_unique<Good>("twin.doubling", run_once),
                 {.platform = "good", .backend = "twin"});
  }
  if (std::getenv("BAD_KERNELS") != nullptr && is_wanted("whole")) {
    registry.add(std::make_unique<Whole>(run_once), {.platform = "good", .backend = "cpu"});
  }
  // Of a platform whose device nobody has.
  registry.add(std::make_unique<Bad>(host_faults()[0], "elsewhere"),
               {.platform = "elsewhere", .backend = "moon"});
  for (const Fault& fault : host_faults()) {
    if (!is_wanted(fault.name)) continue;
    registry.add(std::make_unique<Bad>(fault), {.platform = "bad", .backend = "cpu"});
  }
}
