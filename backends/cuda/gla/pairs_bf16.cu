#include "cuda/gla/pairs_of_one.cuh"

namespace attune::cuda::gla_backward {

template void launch_pairs<__nv_bfloat16, 64>(const GlaBackwardParams&, cudaStream_t);
template void launch_pairs<__nv_bfloat16, 128>(const GlaBackwardParams&, cudaStream_t);
template void launch_pairs<__nv_bfloat16, 256>(const GlaBackwardParams&, cudaStream_t);

}  // namespace attune::cuda::gla_backward
