// A task of the chunked forward kernel on tile registers: a sequence, a query head and a tile of V,
// and where in scratch memory its parts are.
#pragma once

#include "chunk_tiles_isa.hpp"
#include "cpu/simd/recurrent_attention/recurrent_task.inl.hpp"
#include "tile_channel_decays.inl.hpp"
#include "tile_strips.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

struct TileTask {
  std::int64_t tokens = 0;
  std::int64_t chunk = 0;
  TileKeys keys;
  TileValues values;
  TileState state;
  OutputTarget target;
  StateView<const float*> initial;
  StateView<float*> final;
  float scale = 1.0F;
  alignas(64) float scales[kMaxChunk];  // the same for every token
  FetchList* fetch_list = nullptr;      // null when nothing is fetched ahead
};

// ---- making a task ----

inline TileKeys tile_keys(const ChunkTilesTiling& tiling, const RecurrentForwardParams& p,
                          const TaskRange& range, float* scratch) {
  const ChunkTilesScratch& at = tiling.scratch;
  const auto source = [&](const TokenTensor<const void*>& tensor, std::int64_t head,
                          std::int64_t copies) {
    return HalfSource{.rows = rows_of<const char>(tensor, range, head, 0),
                      .elements = p.key_dim,
                      .copies = reinterpret_cast<char*>(scratch + copies),
                      .zeros = reinterpret_cast<const char*>(scratch + at.zeros)};
  };
  TileKeys keys;
  keys.q = source(p.q, range.head, at.q_copies);
  keys.k = source(p.k, range.kv_head, at.k_copies);
  keys.gk = {.rows = rows_of<const char>(p.gk, range, range.head, 0),
             .elements = p.key_dim,
             .buffer = scratch + at.key_gates,
             .zeros = scratch + at.zeros};
  keys.g = rows_of<const char>(p.g, range, range.head, 0);
  keys.gamma = gamma_of(p, range);
  keys.balance = balance_of(p, range, 1.0F);
  keys.has_decay = has_key_decay(p);
  keys.keeps_sums = p.gv.data != nullptr;
  keys.channels = p.key_dim;
  keys.width = (p.key_dim + kTileDepth - 1) / kTileDepth * kTileDepth;
  const std::int64_t depth = keys.width / kTileDepth;
  const std::int64_t tokens_deep = tiling.chunk / kTileDepth;
  keys.queries = {scratch + at.queries, depth};
  keys.keys = {scratch + at.keys, depth};
  keys.writes = {scratch + at.writes, tokens_deep};
  keys.sums = {scratch + at.sums, tiling.chunk / kTileRows};
  keys.pairs = {scratch + at.pairs, tokens_deep};
  keys.decays = scratch + at.key_decays;
  keys.carries = scratch + at.key_carries;
  keys.pending = scratch + at.key_pending;
  keys.magnitudes = scratch + at.key_magnitudes;
  keys.near_keys = scratch + at.near_keys;
  keys.token_decays = scratch + at.key_token_decays;
  keys.relative = scratch + at.key_relative;
  keys.ends = scratch + at.key_ends;
  keys.inverses = scratch + at.key_inverses;
  keys.block_decays = scratch + at.key_block_decays;
  return keys;
}

inline TileValues tile_values(const ChunkTilesTiling& tiling, const RecurrentForwardParams& p,
                              const TaskRange& range, float* scratch) {
  const ChunkTilesScratch& at = tiling.scratch;
  TileValues values;
  values.columns = columns_of(tiling, p, range);
  values.width = (values.columns + kTileDepth - 1) / kTileDepth * kTileDepth;
  values.v = {.rows = rows_of<const char>(p.v, range, range.kv_head, range.column),
              .elements = values.columns,
              .copies = reinterpret_cast<char*>(scratch + at.v_copies),
              .zeros = reinterpret_cast<const char*>(scratch + at.zeros)};
  values.gv = {.rows = rows_of<const char>(p.gv, range, range.head, range.column),
               .elements = values.columns,
               .buffer = scratch + at.value_gates,
               .zeros = scratch + at.zeros};
  values.balance = balance_of(p, range, -1.0F);
  values.o = rows_of<char>(p.o, range, range.head, range.column);
  const std::int64_t tokens_deep = tiling.chunk / kTileDepth;
  values.values = {scratch + at.values, tokens_deep};
  for (std::int64_t block = 0; block < tiling.chunk / kTileRows; ++block) {
    values.blocks[block] = {scratch + at.value_blocks + block * tiling.chunk * tiling.tile_v / 2,
                            tokens_deep};
  }
  values.outputs = scratch + at.outputs;
  values.token_decays = scratch + at.value_token_decays;
  values.reads = scratch + at.value_reads;
  values.ends = scratch + at.value_ends;
  values.inverses = scratch + at.value_inverses;
  values.starts = scratch + at.value_starts;
  values.decays = scratch + at.value_decays;
  values.carries = scratch + at.value_carries;
  values.zeros = scratch + at.zeros;
  return values;
}

inline TileTask tile_task(const ChunkTilesTiling& tiling, const RecurrentForwardParams& p,
                          std::int64_t index, float* scratch) {
  const TaskRange range = task_range(tiling, p, index);
  TileTask task;
  task.tokens = range.tokens;
  task.chunk = tiling.chunk;
  task.keys = tile_keys(tiling, p, range, scratch);
  task.values = tile_values(tiling, p, range, scratch);
  task.target = {.rows = task.values.o, .columns = task.values.columns, .stream = tiling.stream};
  task.state = {.floats = {scratch + tiling.scratch.state, task.keys.width / kTileRows},
                .pairs = {scratch + tiling.scratch.state_pairs, task.keys.depth()},
                .rows = p.key_dim,
                .columns = task.values.columns,
                .row_tiles = task.keys.width / kTileRows,
                .column_tiles = task.values.width / kLanes};
  task.initial = state_of(p.initial_state, range);
  task.final = state_of(p.final_state, range);
  task.scale = p.scale;
  for (float& scale : task.scales) scale = p.scale;
  return task;
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
