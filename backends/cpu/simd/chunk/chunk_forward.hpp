// Chunked linear attention on the CPU: a chunk of tokens by a few matrix products.
//
//   S_t[i, j] = exp(g_t + g_gamma + gk_t[i] + gv_t[j]) * S_{t-1}[i, j] + k_t[i] v_t[j]
//   o_t[j]    = scale * sum_i q_t[i] S_t[i, j]
//
// The state is fp32 whatever the storage type. Any decay is taken: decays of different tokens are
// multiplied, or their logs added, never divided or subtracted, and a log decay of -inf resets the
// state exactly. Tasks write disjoint outputs and a sum over K is never split, so results do not
// depend on the number of threads, nor on tile_v, prefetch and stream. Denormals count as zero.
//
// A task is a sequence, a query head and a tile of V. Heads of a group share keys and values but
// neither gates nor states, so there is no more for them to share than packing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "chunk_forward_config.hpp"
#include "cpu/simd/recurrent_attention/recurrent_forward_params.hpp"

namespace attune::cpu {

/// The number of independent tasks: (sequence, head, tile of V), tile fastest.
std::int64_t chunk_forward_task_count(const ChunkForwardConfig& config,
                                      const RecurrentForwardParams& params);

/// Scratch memory each thread needs. A multiple of 64.
std::size_t chunk_forward_scratch_bytes(const ChunkForwardConfig& config,
                                        const RecurrentForwardParams& params);

/// Runs tasks [first_task, last_task). `scratch` is aligned to 64 bytes and used by no other
/// thread; it need not be initialised. `config.isa` must be supported here (isa_supported). Does
/// not throw.
void chunk_forward(const ChunkForwardConfig& config, const RecurrentForwardParams& params,
                   std::int64_t first_task, std::int64_t last_task, std::byte* scratch);

}  // namespace attune::cpu
