// The kernels of a GPU. BAD_KERNELS in the environment names the bad ones to register, joined by
// commas; without it all are.
#include <attune/core/plugin.hpp>

#include "gpu_kernels.hpp"
#include "kernels.hpp"

extern "C" const char* attune_plugin_abi() { return attune::kPluginAbi; }
extern "C" void attune_register(attune::Registry& registry) {
  using namespace doubling;
  registry.add_op<Doubling>();
  registry.add(std::make_unique<Reference>(), {.platform = "reference", .backend = "cpu"});
  registry.add(std::make_unique<Good>("good.doubling", run_on_gpu),
               {.platform = "good", .backend = "gpu", .priority = 100});
  for (const Fault& fault : gpu_faults()) {
    if (!is_wanted(fault.name)) continue;
    registry.add(std::make_unique<Bad>(fault), {.platform = "bad", .backend = "gpu"});
  }
}
