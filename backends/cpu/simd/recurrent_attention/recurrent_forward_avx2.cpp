// The recurrent forward kernel for AVX2. Compiled with -mavx2 -mfma -mf16c.
#define ATTUNE_SIMD_NAMESPACE avx2
#define ATTUNE_SIMD_LANES 8
#include "recurrent_forward.inl.hpp"

namespace attune::cpu {

void recurrent_forward_avx2(const RecurrentForwardTiling& tiling,
                            const RecurrentForwardParams& params, std::int64_t first_task,
                            std::int64_t last_task, float* scratch) {
  avx2::run_tasks(tiling, params, first_task, last_task, scratch);
}

}  // namespace attune::cpu
