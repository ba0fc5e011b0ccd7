// The kernels for CPUs as one value, the best first. The device is the registry's own.
#include <attune/backends/cpu.hpp>

#include "cpu/kernels.hpp"

namespace attune::cpu {

void register_reference_kernels(Registry& registry) {
  const Placement at{.platform = kReferencePlatform, .backend = "cpu", .priority = 0};
  registry.add(reference::make_recurrent_attention(), at);
  registry.add(reference::make_recurrent_attention_backward(), at);
  registry.add(reference::make_recurrent_decode(), at);
}

void register_simd_kernels(Registry& registry) {
  const Placement at{.platform = "simd", .backend = "cpu", .priority = 50};
  registry.add(simd::chunk_tiles::make(), at);
  registry.add(simd::recurrent_attention::make(), at);
  registry.add(simd::chunk::make(), at);
  registry.add(simd::chunk_tiles::backward::make(), at);
  registry.add(simd::chunk::backward::make(), at);
  registry.add(simd::recurrent_attention::backward::make(), at);
  registry.add(simd::decode::make(), at);
}

Backend backend() {
  return {.name = "cpu", .register_kernels = [](Registry& registry) {
            register_simd_kernels(registry);
            register_reference_kernels(registry);
          }};
}

}  // namespace attune::cpu
