// The chunked forward kernel as it is compiled for tile registers.
#pragma once

#include <cstdint>

#include "chunk_tiles_scratch.hpp"

namespace attune::cpu {

/// Runs tasks [first_task, last_task). `scratch` is as chunk_tiles() has it.
void chunk_tiles_amx_bf16(const ChunkTilesTiling& tiling, const RecurrentForwardParams& params,
                          std::int64_t first_task, std::int64_t last_task, float* scratch);

}  // namespace attune::cpu
