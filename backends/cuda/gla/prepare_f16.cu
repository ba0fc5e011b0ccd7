#include "cuda/gla/moved_gates.cuh"
#include "cuda/gla/prepare.cuh"

namespace attune::cuda::gla_backward {

template void launch_move_gates<__half>(const GlaBackwardParams&, std::int64_t, float*,
                                        cudaStream_t);
template void launch_prepare<__half>(const GlaBackwardParams&, cudaStream_t);

}  // namespace attune::cuda::gla_backward
