#include "chunk_tiles.hpp"

#include <algorithm>

#include "chunk_tiles_isa.hpp"
#include "cpu/simd/flush_denormals.hpp"
#include "cpu/simd/scratch_layout.hpp"

namespace attune::cpu {
namespace {

constexpr std::int64_t kTileFloats = 256;
constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kTileDepth = 32;

using simd::round_up;
using simd::ScratchLayout;

void reserve_key_decays(ScratchLayout& layout, std::int64_t chunk, std::int64_t width,
                        ChunkTilesScratch& scratch) {
  scratch.key_magnitudes = layout.reserve(width);
  scratch.near_keys = layout.reserve(kTileRows * width / 2);
  scratch.key_gates = layout.reserve(kTileRows * width);
  scratch.key_token_decays = layout.reserve(kTileRows * width);
  scratch.key_relative = layout.reserve(kTileRows * width);
  scratch.key_ends = layout.reserve(chunk * width);
  scratch.key_inverses = layout.reserve(width);
  scratch.key_block_decays = layout.reserve(chunk / kTileRows * width);
}

void reserve_value_decays(ScratchLayout& layout, std::int64_t chunk, std::int64_t width,
                          ChunkTilesScratch& scratch) {
  scratch.value_gates = layout.reserve(kTileRows * width);
  scratch.value_token_decays = layout.reserve(chunk * width);
  scratch.value_reads = layout.reserve(chunk * width);
  scratch.value_ends = layout.reserve(chunk * width);
  scratch.value_blocks = layout.reserve(chunk / kTileRows * chunk * width / 2);
  scratch.value_starts = layout.reserve((chunk / kTileRows + 1) * width);
  scratch.value_inverses = layout.reserve(width);
  scratch.value_decays = layout.reserve(width);
  scratch.value_carries = layout.reserve(width);
}

}  // namespace

ChunkTilesTiling chunk_tiles_tiling(const ChunkTilesConfig& config,
                                    const RecurrentForwardParams& params, bool has_gk,
                                    bool has_gv) {
  ChunkTilesTiling tiling;
  tiling.chunk = config.chunk;
  tiling.tile_v = round_up(std::min<std::int64_t>(config.tile_v, params.value_dim), kTileDepth);
  tiling.tiles = round_up(params.value_dim, tiling.tile_v) / tiling.tile_v;
  tiling.prefetch = config.prefetch;
  tiling.stream = config.stream;

  const std::int64_t chunk = tiling.chunk;
  const std::int64_t keys = round_up(params.key_dim, kTileDepth);
  const std::int64_t values = tiling.tile_v;
  ChunkTilesScratch& scratch = tiling.scratch;
  ScratchLayout layout;
  scratch.state = layout.reserve(keys * values);
  scratch.state_pairs = layout.reserve(keys * kTileDepth / 2);
  scratch.queries = layout.reserve(chunk * keys / 2);
  scratch.keys = layout.reserve(chunk * keys / 2);
  scratch.writes = layout.reserve(chunk * keys / 2);
  scratch.values = layout.reserve(chunk * (has_gv ? values : 2 * kTileDepth) / 2);
  if (has_gk || has_gv) scratch.sums = layout.reserve(chunk * chunk);
  scratch.pairs = layout.reserve(chunk * chunk / 2);
  scratch.outputs = layout.reserve(4 * kTileFloats);
  scratch.q_copies = layout.reserve(chunk * keys / 2);
  scratch.k_copies = layout.reserve(chunk * keys / 2);
  scratch.v_copies = layout.reserve(chunk * values / 2);
  scratch.key_decays = layout.reserve(keys);
  scratch.key_carries = layout.reserve(keys);
  scratch.key_pending = layout.reserve(keys);
  if (has_gk) reserve_key_decays(layout, chunk, keys, scratch);
  if (has_gv) reserve_value_decays(layout, chunk, values, scratch);
  scratch.zeros = layout.reserve(std::max(keys, values));
  scratch.size = layout.size();
  return tiling;
}

std::int64_t chunk_tiles_task_count(const ChunkTilesTiling& tiling,
                                    const RecurrentForwardParams& params) {
  return params.sequences * params.heads * tiling.tiles;
}

std::size_t chunk_tiles_scratch_bytes(const ChunkTilesTiling& tiling) {
  return static_cast<std::size_t>(tiling.scratch.size) * sizeof(float);
}

void chunk_tiles([[maybe_unused]] const ChunkTilesTiling& tiling,
                 [[maybe_unused]] const RecurrentForwardParams& params,
                 [[maybe_unused]] std::int64_t first_task, [[maybe_unused]] std::int64_t last_task,
                 [[maybe_unused]] std::byte* scratch) {
#if defined(__x86_64__)  // no other device has amx_bf16
  const FlushDenormals flush_denormals;
  auto* const memory = reinterpret_cast<float*>(scratch);  // aligned to 64 bytes by contract
  chunk_tiles_amx_bf16(tiling, params, first_task, last_task, memory);
#endif
}

}  // namespace attune::cpu
