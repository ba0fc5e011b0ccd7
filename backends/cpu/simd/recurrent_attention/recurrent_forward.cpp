#include "recurrent_forward.hpp"

#include <algorithm>

#include "cpu/simd/flush_denormals.hpp"
#include "cpu/simd/isa.hpp"
#include "cpu/simd/scratch_layout.hpp"
#include "recurrent_forward_isa.hpp"

namespace attune::cpu {
namespace {

using simd::round_up;

RecurrentForwardScratch scratch_layout(std::int64_t tokens, std::int64_t passes, std::int64_t rows,
                                       std::int64_t lanes, std::int64_t tile_v,
                                       std::int64_t heads) {
  const std::int64_t padded_rows = round_up(rows, lanes);
  simd::ScratchLayout layout;
  RecurrentForwardScratch scratch;
  scratch.state = layout.reserve(heads * rows * tile_v);
  scratch.coefficients = layout.reserve(passes * (2 * tokens + 1) * padded_rows);
  scratch.q_rows = layout.reserve(tokens * padded_rows);
  scratch.k_rows = layout.reserve(tokens * padded_rows);
  scratch.key_decays = layout.reserve(tokens * padded_rows);
  scratch.key_carries = layout.reserve(heads * padded_rows);
  scratch.v_rows = layout.reserve(passes * tokens * tile_v);
  scratch.o_rows = layout.reserve(passes * tokens * tile_v);
  scratch.value_decays = layout.reserve(passes * tokens * tile_v);
  scratch.value_totals = layout.reserve(passes * tile_v);
  scratch.value_carries = layout.reserve(heads * tile_v);
  scratch.size = layout.size();
  return scratch;
}

RecurrentForwardTiling tiling_of(const RecurrentForwardConfig& config,
                                 const RecurrentForwardParams& params) {
  const std::int64_t wanted = std::min<std::int64_t>(config.tile_v, params.value_dim);
  RecurrentForwardTiling tiling;
  tiling.tokens_per_pass = config.tokens_per_pass;
  tiling.heads = std::min<std::int64_t>(config.heads, params.heads);
  tiling.block_vectors = kSumsPerPass / config.tokens_per_pass;
  tiling.tile_v = round_up(wanted, lanes(config.isa));
  tiling.tiles = round_up(params.value_dim, tiling.tile_v) / tiling.tile_v;
  tiling.passes = config.passes;
  tiling.prefetch = config.prefetch;
  tiling.prefetch_state = config.prefetch_state;
  // What is updated in place was just read: it is in the cache.
  tiling.stream = config.stream && params.final_state.data != params.initial_state.data;
  tiling.scratch = scratch_layout(config.tokens_per_pass, config.passes, params.key_dim,
                                  lanes(config.isa), tiling.tile_v, tiling.heads);
  return tiling;
}

}  // namespace

std::int64_t recurrent_forward_task_count(const RecurrentForwardConfig& config,
                                          const RecurrentForwardParams& params) {
  const RecurrentForwardTiling tiling = tiling_of(config, params);
  const std::int64_t groups = round_up(params.heads, tiling.heads) / tiling.heads;
  return params.sequences * groups * tiling.tiles;
}

std::size_t recurrent_forward_scratch_bytes(const RecurrentForwardConfig& config,
                                            const RecurrentForwardParams& params) {
  return static_cast<std::size_t>(tiling_of(config, params).scratch.size) * sizeof(float);
}

void recurrent_forward(const RecurrentForwardConfig& config, const RecurrentForwardParams& params,
                       std::int64_t first_task, std::int64_t last_task, std::byte* scratch) {
  const RecurrentForwardTiling tiling = tiling_of(config, params);
  const FlushDenormals flush_denormals;
  auto* const memory = reinterpret_cast<float*>(scratch);  // aligned to 64 bytes by contract
  switch (config.isa) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return recurrent_forward_avx512(tiling, params, first_task, last_task, memory);
    case Isa::kAvx2:
      return recurrent_forward_avx2(tiling, params, first_task, last_task, memory);
#endif
    default:
      return recurrent_forward_baseline(tiling, params, first_task, last_task, memory);
  }
}

}  // namespace attune::cpu
