// The recurrent backward kernel for the compiler's default target: SSE2 on x86-64, NEON on
// aarch64.
#define ATTUNE_SIMD_NAMESPACE baseline
#define ATTUNE_SIMD_LANES 4
#include "backward.inl.hpp"

namespace attune::cpu {

void recurrent_backward_baseline(const RecurrentBackwardParams& params, std::int64_t first_task,
                                 std::int64_t last_task, float* scratch) {
  baseline::run_backward_tasks(params, first_task, last_task, scratch);
}

}  // namespace attune::cpu
