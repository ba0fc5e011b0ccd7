#include "cuda/gla_backward/pairs_launch.cuh"
#include "cuda/gla_backward/prepare.cuh"

namespace attune::cuda::gla_backward {

template void launch_prepare<__half, 64>(const GlaBackwardParams&, cudaStream_t);
template void launch_prepare<__half, 128>(const GlaBackwardParams&, cudaStream_t);
template void launch_pairs<__half, 64>(const GlaBackwardParams&, cudaStream_t);
template void launch_pairs<__half, 128>(const GlaBackwardParams&, cudaStream_t);

}  // namespace attune::cuda::gla_backward
