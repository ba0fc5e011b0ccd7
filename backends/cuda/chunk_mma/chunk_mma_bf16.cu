#include "chunk_mma.cuh"

namespace attune::cuda {
template void launch_chunk_mma<__nv_bfloat16>(const ChunkMmaParams&, const ChunkMmaConfig&,
                                              cudaStream_t);
}  // namespace attune::cuda
