// The recurrent forward kernel for the compiler's default target: SSE2 on x86-64, NEON on aarch64.
#define ATTUNE_SIMD_NAMESPACE baseline
#define ATTUNE_SIMD_LANES 4
#include "recurrent_forward.inl.hpp"

namespace attune::cpu {

void recurrent_forward_baseline(const RecurrentForwardTiling& tiling,
                                const RecurrentForwardParams& params, std::int64_t first_task,
                                std::int64_t last_task, float* scratch) {
  baseline::run_tasks(tiling, params, first_task, last_task, scratch);
}

}  // namespace attune::cpu
