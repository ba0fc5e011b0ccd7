#include "cuda/decode/decode_any_strides.cuh"
#include "cuda/decode/decode_row_tiles.cuh"

namespace attune::cuda {

template void launch_decode_row_tiles<float>(const DecodeConfig&, const DecodeParams&,
                                             cudaStream_t);
template void launch_decode_any_strides<float>(const DecodeConfig&, const DecodeParams&,
                                               cudaStream_t);

}  // namespace attune::cuda
