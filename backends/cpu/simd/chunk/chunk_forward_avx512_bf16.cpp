// The chunked forward kernel for AVX-512 BF16: its products are of bf16 pairs. Compiled as for
// AVX-512 and with -mavx512bf16.
#define ATTUNE_SIMD_NAMESPACE avx512_bf16
#define ATTUNE_SIMD_LANES 16
#include "chunk_forward.inl.hpp"

namespace attune::cpu {

void chunk_forward_avx512_bf16(const ChunkForwardTiling& tiling,
                               const RecurrentForwardParams& params, std::int64_t first_task,
                               std::int64_t last_task, float* scratch) {
  avx512_bf16::run_chunk_tasks(tiling, params, first_task, last_task, scratch);
}

}  // namespace attune::cpu
