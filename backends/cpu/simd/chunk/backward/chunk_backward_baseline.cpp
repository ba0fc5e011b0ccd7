// The chunked backward kernel for the compiler's default target: SSE2 on x86-64, NEON on
// aarch64.
#define ATTUNE_SIMD_NAMESPACE baseline
#define ATTUNE_SIMD_LANES 4
#include "chunk_backward.inl.hpp"

namespace attune::cpu {

void chunk_backward_baseline(const ChunkBackwardParams& params, std::int64_t first,
                             std::int64_t last, float* scratch) {
  baseline::run_chunk_backward(params, first, last, scratch);
}

void sum_chunk_backward_baseline(const ChunkBackwardParams& params, std::int64_t first,
                                 std::int64_t last) {
  baseline::run_chunk_backward_sum(params, first, last);
}

}  // namespace attune::cpu
