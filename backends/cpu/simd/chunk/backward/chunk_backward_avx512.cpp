// The chunked backward kernel for AVX-512. Compiled with -mavx512f -mavx512bw -mavx512dq
// -mavx512vl -mfma -mf16c.
#define ATTUNE_SIMD_NAMESPACE avx512
#define ATTUNE_SIMD_LANES 16
#include "chunk_backward.inl.hpp"

namespace attune::cpu {

void chunk_backward_avx512(const ChunkBackwardParams& params, std::int64_t first, std::int64_t last,
                           float* scratch) {
  avx512::run_chunk_backward(params, first, last, scratch);
}

void sum_chunk_backward_avx512(const ChunkBackwardParams& params, std::int64_t first,
                               std::int64_t last) {
  avx512::run_chunk_backward_sum(params, first, last);
}

}  // namespace attune::cpu
