// Chunked linear attention on the CPU's tile registers (AMX-BF16), for bf16 inputs and outputs.
//
//   S_t[i, j] = exp(g_t + g_gamma + gk_t[i] + gv_t[j]) * S_{t-1}[i, j] + k_t[i] v_t[j]
//   o_t[j]    = scale * sum_i q_t[i] S_t[i, j]
//
// The state and all sums are fp32. Rounded to bf16, once each, are the operands of products: the
// state as a chunk reads it, q, k and v with their decays, the pairs of tokens. Any decay is taken,
// and -inf resets exactly. Tasks write disjoint outputs and a sum over K is never split, so results
// do not depend on the number of threads, nor on tile_v, prefetch and stream. Denormals count as
// zero.
//
// A task is a sequence, a query head and a tile of V.
#pragma once

#include <cstddef>
#include <cstdint>

#include "chunk_tiles_config.hpp"
#include "chunk_tiles_scratch.hpp"
#include "cpu/simd/recurrent_attention/recurrent_forward_params.hpp"

namespace attune::cpu {

/// What of a config and the sizes of a problem (its gates among them) reaches the kernel.
ChunkTilesTiling chunk_tiles_tiling(const ChunkTilesConfig& config,
                                    const RecurrentForwardParams& params, bool has_gk, bool has_gv);

/// The number of independent tasks: (sequence, head, tile of V), tile fastest.
std::int64_t chunk_tiles_task_count(const ChunkTilesTiling& tiling,
                                    const RecurrentForwardParams& params);

/// Scratch memory each thread needs. A multiple of 64.
std::size_t chunk_tiles_scratch_bytes(const ChunkTilesTiling& tiling);

/// Runs tasks [first_task, last_task). `scratch` is aligned to 64 bytes and used by no other
/// thread; it need not be initialised. The device must have amx_bf16. Does not throw.
void chunk_tiles(const ChunkTilesTiling& tiling, const RecurrentForwardParams& params,
                 std::int64_t first_task, std::int64_t last_task, std::byte* scratch);

}  // namespace attune::cpu
