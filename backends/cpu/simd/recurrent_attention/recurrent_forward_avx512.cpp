// The recurrent forward kernel for AVX-512. Compiled with -mavx512f -mavx512bw -mavx512dq
// -mavx512vl -mfma -mf16c.
#define ATTUNE_SIMD_NAMESPACE avx512
#define ATTUNE_SIMD_LANES 16
#include "recurrent_forward.inl.hpp"

namespace attune::cpu {

void recurrent_forward_avx512(const RecurrentForwardTiling& tiling,
                              const RecurrentForwardParams& params, std::int64_t first_task,
                              std::int64_t last_task, float* scratch) {
  avx512::run_tasks(tiling, params, first_task, last_task, scratch);
}

}  // namespace attune::cpu
