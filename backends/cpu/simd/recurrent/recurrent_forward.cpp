#include "recurrent_forward.hpp"

#include <algorithm>

#include "cpu/simd/flush_denormals.hpp"
#include "cpu/simd/isa.hpp"
#include "recurrent_forward_isa.hpp"

namespace attune::cpu {
namespace {

constexpr std::int64_t kCacheLineFloats = 16;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

RecurrentForwardScratch scratch_layout(std::int64_t tokens, std::int64_t rows, std::int64_t lanes,
                                       std::int64_t tile_v) {
  const std::int64_t padded_rows = round_up(rows, lanes);
  RecurrentForwardScratch scratch;
  const auto reserve = [&scratch](std::int64_t floats) {
    const std::int64_t offset = scratch.size;
    scratch.size += round_up(floats, kCacheLineFloats);
    return offset;
  };
  scratch.state = reserve(rows * tile_v);
  scratch.coefficients = reserve((2 * tokens + 1) * padded_rows);
  scratch.q_rows = reserve(tokens * padded_rows);
  scratch.k_rows = reserve(tokens * padded_rows);
  scratch.key_decays = reserve(tokens * padded_rows);
  scratch.key_totals = reserve(padded_rows);
  scratch.key_carries = reserve(padded_rows);
  scratch.v_rows = reserve(tokens * tile_v);
  scratch.o_rows = reserve(tokens * tile_v);
  scratch.value_decays = reserve(tokens * tile_v);
  scratch.value_totals = reserve(tile_v);
  scratch.value_carries = reserve(tile_v);
  return scratch;
}

RecurrentForwardTiling tiling_of(const RecurrentForwardConfig& config,
                                 const RecurrentForwardParams& params) {
  const std::int64_t wanted = std::min<std::int64_t>(config.tile_v, params.value_dim);
  RecurrentForwardTiling tiling;
  tiling.tokens_per_pass = config.tokens_per_pass;
  tiling.block_vectors = kSumsPerPass / config.tokens_per_pass;
  tiling.tile_v = round_up(wanted, lanes(config.isa));
  tiling.tiles = round_up(params.value_dim, tiling.tile_v) / tiling.tile_v;
  tiling.prefetch_tokens = config.prefetch_tokens;
  tiling.scratch =
      scratch_layout(config.tokens_per_pass, params.key_dim, lanes(config.isa), tiling.tile_v);
  return tiling;
}

}  // namespace

std::int64_t recurrent_forward_task_count(const RecurrentForwardConfig& config,
                                          const RecurrentForwardParams& params) {
  return params.sequences * params.heads * tiling_of(config, params).tiles;
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
