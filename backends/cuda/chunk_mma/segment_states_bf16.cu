#include "segment_states.cuh"

namespace attune::cuda {
template void launch_segment_states<__nv_bfloat16>(const ChunkMmaParams&, const ChunkMmaConfig&,
                                                   cudaStream_t);
}  // namespace attune::cuda
