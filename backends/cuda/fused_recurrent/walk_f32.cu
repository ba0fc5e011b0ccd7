#include "cuda/fused_recurrent/walk.cuh"

namespace attune::cuda {

template void launch_walk<float>(const WalkShape&, const WalkParams&, cudaStream_t);

}  // namespace attune::cuda
