#include "cuda/chunk_wgmma/segment_states.cuh"
#include "cuda/chunk_wgmma/walk_wgmma.cuh"

namespace attune::cuda {

template void launch_walk<__nv_bfloat16>(const ChunkWgmmaConfig&, const WalkParams&, cudaStream_t);
template void launch_segment_states<__nv_bfloat16>(const ChunkWgmmaConfig&, const WalkParams&,
                                                   cudaStream_t);

}  // namespace attune::cuda
