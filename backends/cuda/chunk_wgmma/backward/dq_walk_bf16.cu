#include "cuda/chunk_wgmma/backward/dq_launch.cuh"

namespace attune::cuda::chunk_backward {

template void launch_dq_walk<__nv_bfloat16>(const ChunkBackwardParams&, const ChunkBackwardShape&,
                                            cudaStream_t);

}  // namespace attune::cuda::chunk_backward
