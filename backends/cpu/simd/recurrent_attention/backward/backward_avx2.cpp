// The recurrent backward kernel for AVX2. Compiled with -mavx2 -mfma -mf16c.
#define ATTUNE_SIMD_NAMESPACE avx2
#define ATTUNE_SIMD_LANES 8
#include "backward.inl.hpp"

namespace attune::cpu {

void recurrent_backward_avx2(const RecurrentBackwardParams& params, std::int64_t first_task,
                             std::int64_t last_task, float* scratch) {
  avx2::run_backward_tasks(params, first_task, last_task, scratch);
}

}  // namespace attune::cpu
