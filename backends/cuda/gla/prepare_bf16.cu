#include "cuda/gla/moved_gates.cuh"
#include "cuda/gla/prepare.cuh"

namespace attune::cuda::gla_backward {

template void launch_move_gates<__nv_bfloat16>(const GlaBackwardParams&, std::int64_t, float*,
                                               cudaStream_t);
template void launch_prepare<__nv_bfloat16>(const GlaBackwardParams&, cudaStream_t);

}  // namespace attune::cuda::gla_backward
