#include "cuda/decode/decode_any_strides.cuh"
#include "cuda/decode/decode_row_tiles.cuh"

namespace attune::cuda {

template void launch_decode_row_tiles<__nv_bfloat16>(const DecodeConfig&, const DecodeParams&,
                                                     cudaStream_t);
template void launch_decode_any_strides<__nv_bfloat16>(const DecodeConfig&, const DecodeParams&,
                                                       cudaStream_t);

}  // namespace attune::cuda
