#include "cuda/gla/state_walk.cuh"

namespace attune::cuda::gla_backward {

template void launch_state_walks<__half, 64>(const GlaBackwardParams&, cudaStream_t);
template void launch_state_walks<__half, 128>(const GlaBackwardParams&, cudaStream_t);

}  // namespace attune::cuda::gla_backward
