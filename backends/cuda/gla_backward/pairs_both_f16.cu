#include "cuda/gla_backward/pairs_of_both.cuh"

namespace attune::cuda::gla_backward {

template void launch_pairs_of_both<__half>(const GlaBackwardParams&, const GlaBackwardParams&,
                                           cudaStream_t);

}  // namespace attune::cuda::gla_backward
