// The chunked forward kernel for AMX-BF16, with AVX-512 BF16 for what is not a product. Compiled as
// for AVX-512 BF16 and with -mamx-tile -mamx-bf16.
#define ATTUNE_SIMD_NAMESPACE amx_bf16
#define ATTUNE_SIMD_LANES 16
#include "chunk_tiles.inl.hpp"

namespace attune::cpu {

void chunk_tiles_amx_bf16(const ChunkTilesTiling& tiling, const RecurrentForwardParams& params,
                          std::int64_t first_task, std::int64_t last_task, float* scratch) {
  amx_bf16::run_chunk_tiles(tiling, params, first_task, last_task, scratch);
}

}  // namespace attune::cpu
