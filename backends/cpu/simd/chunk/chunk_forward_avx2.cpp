// The chunked forward kernel for AVX2. Compiled with -mavx2 -mfma -mf16c.
#define ATTUNE_SIMD_NAMESPACE avx2
#define ATTUNE_SIMD_LANES 8
#include "chunk_forward.inl.hpp"

namespace attune::cpu {

void chunk_forward_avx2(const ChunkForwardTiling& tiling, const RecurrentForwardParams& params,
                        std::int64_t first_task, std::int64_t last_task, float* scratch) {
  avx2::run_chunk_tasks(tiling, params, first_task, last_task, scratch);
}

}  // namespace attune::cpu
