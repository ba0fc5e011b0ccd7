#include "chunk_forward.hpp"

#include <algorithm>

#include "chunk_forward_isa.hpp"
#include "cpu/simd/flush_denormals.hpp"
#include "cpu/simd/isa.hpp"
#include "cpu/simd/scratch_layout.hpp"

namespace attune::cpu {
namespace {

constexpr std::int64_t kPanelWidth = 16;
constexpr std::int64_t kPairTokens = 4;

using simd::round_up;

ChunkForwardScratch scratch_layout(std::int64_t chunk, std::int64_t key_dim, std::int64_t tile_v,
                                   bool has_pairs) {
  const std::int64_t padded = round_up(key_dim, kPanelWidth);
  simd::ScratchLayout layout;
  ChunkForwardScratch scratch;
  scratch.state = layout.reserve((padded + chunk) * tile_v);
  scratch.reads = layout.reserve((padded + round_up(chunk, kPanelWidth)) * chunk);
  scratch.writes = layout.reserve(padded * chunk);
  scratch.relative = layout.reserve(padded * chunk);
  scratch.through = layout.reserve(chunk);
  scratch.behind = layout.reserve(chunk);
  scratch.key_decays = layout.reserve(padded);
  scratch.key_carries = layout.reserve(padded);
  scratch.key_log_sums = layout.reserve(padded);
  scratch.key_prefix = layout.reserve(padded);
  scratch.block_decays = layout.reserve(padded * (chunk / kPairTokens));
  scratch.q_rows = layout.reserve(padded * chunk);
  scratch.k_rows = layout.reserve(padded * chunk);
  scratch.gk_rows = layout.reserve(padded * chunk);
  scratch.v_rows = layout.reserve(tile_v * chunk);
  scratch.gv_rows = layout.reserve(tile_v * chunk);
  scratch.o_rows = layout.reserve(tile_v * chunk);
  scratch.value_decays = layout.reserve(tile_v);
  scratch.value_carries = layout.reserve(tile_v);
  if (has_pairs) {
    const std::int64_t paired = round_up(key_dim, 2 * kPanelWidth) / 2;
    scratch.state_pairs = layout.reserve((paired + chunk / 2) * tile_v);
    scratch.read_pairs = layout.reserve((paired + round_up(chunk, 2 * kPanelWidth) / 2) * chunk);
    scratch.write_pairs = layout.reserve(padded * chunk / 2);
  }
  scratch.zeros = layout.reserve(std::max(padded, tile_v));
  scratch.size = layout.size();
  return scratch;
}

ChunkForwardTiling tiling_of(const ChunkForwardConfig& config,
                             const RecurrentForwardParams& params) {
  ChunkForwardTiling tiling;
  tiling.chunk = config.chunk;
  tiling.tile_v =
      round_up(std::min<std::int64_t>(config.tile_v, params.value_dim), lanes(config.isa));
  tiling.tiles = round_up(params.value_dim, tiling.tile_v) / tiling.tile_v;
  tiling.prefetch = config.prefetch;
  tiling.stream = config.stream;
  tiling.scratch =
      scratch_layout(tiling.chunk, params.key_dim, tiling.tile_v, config.isa == Isa::kAvx512Bf16);
  return tiling;
}

}  // namespace

std::int64_t chunk_forward_task_count(const ChunkForwardConfig& config,
                                      const RecurrentForwardParams& params) {
  return params.sequences * params.heads * tiling_of(config, params).tiles;
}

std::size_t chunk_forward_scratch_bytes(const ChunkForwardConfig& config,
                                        const RecurrentForwardParams& params) {
  return static_cast<std::size_t>(tiling_of(config, params).scratch.size) * sizeof(float);
}

void chunk_forward(const ChunkForwardConfig& config, const RecurrentForwardParams& params,
                   std::int64_t first_task, std::int64_t last_task, std::byte* scratch) {
  const ChunkForwardTiling tiling = tiling_of(config, params);
  const FlushDenormals flush_denormals;
  auto* const memory = reinterpret_cast<float*>(scratch);  // aligned to 64 bytes by contract
  switch (config.isa) {
#if defined(__x86_64__)
    case Isa::kAvx512Bf16:
      return chunk_forward_avx512_bf16(tiling, params, first_task, last_task, memory);
    case Isa::kAvx512:
      return chunk_forward_avx512(tiling, params, first_task, last_task, memory);
    case Isa::kAvx2:
      return chunk_forward_avx2(tiling, params, first_task, last_task, memory);
#endif
    default:
      return chunk_forward_baseline(tiling, params, first_task, last_task, memory);
  }
}

}  // namespace attune::cpu
