#include "cuda/chunk_wgmma/backward/dkdv_launch.cuh"

namespace attune::cuda::chunk_backward {

template void launch_dkdv_walk<__nv_bfloat16>(const ChunkBackwardParams&, const ChunkBackwardShape&,
                                              cudaStream_t);

}  // namespace attune::cuda::chunk_backward
