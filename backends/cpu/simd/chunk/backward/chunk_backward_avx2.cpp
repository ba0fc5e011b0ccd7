// The chunked backward kernel for AVX2. Compiled with -mavx2 -mfma -mf16c.
#define ATTUNE_SIMD_NAMESPACE avx2
#define ATTUNE_SIMD_LANES 8
#include "chunk_backward.inl.hpp"

namespace attune::cpu {

void chunk_backward_avx2(const ChunkBackwardParams& params, std::int64_t first, std::int64_t last,
                         float* scratch) {
  avx2::run_chunk_backward(params, first, last, scratch);
}

void sum_chunk_backward_avx2(const ChunkBackwardParams& params, std::int64_t first,
                             std::int64_t last) {
  avx2::run_chunk_backward_sum(params, first, last);
}

}  // namespace attune::cpu
