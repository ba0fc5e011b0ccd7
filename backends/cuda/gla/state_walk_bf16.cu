#include "cuda/gla/state_walk.cuh"

namespace attune::cuda::gla_backward {

template void launch_state_walks<__nv_bfloat16, 64>(const GlaBackwardParams&, cudaStream_t);
template void launch_state_walks<__nv_bfloat16, 128>(const GlaBackwardParams&, cudaStream_t);

}  // namespace attune::cuda::gla_backward
