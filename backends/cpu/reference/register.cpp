#include <attune/backends/cpu.hpp>

#include "reference.hpp"

namespace attune::cpu {

void register_reference_kernels(Registry& registry) {
  const Placement at{.platform = kReferencePlatform, .backend = "cpu", .priority = 0};
  registry.add(reference::make_recurrent_attention(), at);
  registry.add(reference::make_recurrent_attention_backward(), at);
  registry.add(reference::make_recurrent_decode(), at);
}

}  // namespace attune::cpu
