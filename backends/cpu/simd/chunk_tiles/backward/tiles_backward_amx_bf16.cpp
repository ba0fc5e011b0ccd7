// The chunked backward kernel for AMX-BF16, with AVX-512 BF16 for what is not a product. Compiled
// as for AVX-512 BF16 and with -mamx-tile -mamx-bf16.
#define ATTUNE_SIMD_NAMESPACE amx_bf16
#define ATTUNE_SIMD_LANES 16
#include "tiles_backward.inl.hpp"

namespace attune::cpu {

void tiles_backward_amx_bf16(const TilesBackwardParams& params, std::int64_t first,
                             std::int64_t last, float* scratch) {
  amx_bf16::run_tiles_backward(params, first, last, scratch);
}

}  // namespace attune::cpu
