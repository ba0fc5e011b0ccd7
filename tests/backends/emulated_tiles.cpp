// The kernels of AMX tile registers with registers in memory, for any CPU: linked into a test
// program they take the place of the library's objects.
#define ATTUNE_EMULATED_TILES
#define ATTUNE_SIMD_NAMESPACE emulated_tiles
#define ATTUNE_SIMD_LANES 16
#include "cpu/simd/chunk_tiles/backward/tiles_backward.inl.hpp"
#include "cpu/simd/chunk_tiles/chunk_tiles.inl.hpp"

namespace attune::cpu {

void chunk_tiles_amx_bf16(const ChunkTilesTiling& tiling, const RecurrentForwardParams& params,
                          std::int64_t first_task, std::int64_t last_task, float* scratch) {
  emulated_tiles::run_chunk_tiles(tiling, params, first_task, last_task, scratch);
}

void tiles_backward_amx_bf16(const TilesBackwardParams& params, std::int64_t first,
                             std::int64_t last, float* scratch) {
  emulated_tiles::run_tiles_backward(params, first, last, scratch);
}

}  // namespace attune::cpu
