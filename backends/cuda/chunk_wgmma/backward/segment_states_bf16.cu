#include "cuda/chunk_wgmma/backward/segment_launch.cuh"

namespace attune::cuda::chunk_backward {

template void launch_segment_states<__nv_bfloat16>(const ChunkBackwardParams&,
                                                   const ChunkBackwardShape&, cudaStream_t);

}  // namespace attune::cuda::chunk_backward
