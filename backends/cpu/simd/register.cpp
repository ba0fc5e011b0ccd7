#include <attune/backends/cpu.hpp>

#include "cpu/simd/simd.hpp"

namespace attune::cpu {

void register_simd_kernels(Registry& registry) {
  const Placement at{.platform = "simd", .backend = "cpu", .priority = 50};
  registry.add(simd::make_chunk_tiles(), at);
  registry.add(simd::make_recurrent_attention(), at);
  registry.add(simd::make_chunk_attention(), at);
  registry.add(simd::make_chunk_tiles_backward(), at);
  registry.add(simd::make_chunk_backward(), at);
  registry.add(simd::make_recurrent_attention_backward(), at);
  registry.add(simd::make_recurrent_decode(), at);
}

}  // namespace attune::cpu
