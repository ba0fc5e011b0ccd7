#include "cuda/gla/state_walk.cuh"

namespace attune::cuda::gla_backward {

template void launch_state_walks_of_both<__half, 64>(const GlaBackwardParams&,
                                                     const GlaBackwardParams&, cudaStream_t);
template void launch_state_walks_of_both<__half, 128>(const GlaBackwardParams&,
                                                      const GlaBackwardParams&, cudaStream_t);

}  // namespace attune::cuda::gla_backward
