// A step of one token on states whose rows are contiguous.
//
// A block takes one head of one row of the batch, some columns of its state. All of a tile's loads
// are under way before anything else is read, which is what keeps the memory busy. States of more
// rows than the block has are taken tile by tile.
// Sums over K are taken by threads, then lanes, then warps, always in the same order.
#pragma once

#include "cuda/decode/row_tile.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::decode {

/// The token in the block's shared memory, and its sums there.
struct DecodeScratch {
  DecodeKey* keys;      // [tile_rows]
  DecodeValue* values;  // [tile_columns]
  float* sums;          // [warps_k, tile_columns]

  static std::size_t bytes(const DecodeConfig& c, int thread_columns) {
    const auto columns = static_cast<std::size_t>(c.tile_columns());
    const std::size_t needed =
        sizeof(DecodeKey) * static_cast<std::size_t>(c.tile_rows(thread_columns)) +
        (sizeof(DecodeValue) + sizeof(float) * static_cast<std::size_t>(c.warps_k)) * columns;
    return std::max(needed, static_cast<std::size_t>(c.shared_bytes()));
  }
};

/// What follows from the config and blockIdx.
struct DecodeBlock {
  DecodeScratch scratch;
  int warps_k, tile_rows, tile_columns;
  int head, first_column;
  std::uint64_t policy;  // of the L2 cache
};

template <class Tile>
__device__ __forceinline__ DecodeBlock decode_block(const DecodeParams& p,
                                                    const DecodeConfig& config) {
  extern __shared__ __align__(16) std::byte shared[];
  DecodeBlock block;
  block.warps_k = config.warps_k;
  block.tile_rows = Tile::kWarpRows * config.warps_k;
  block.tile_columns = Tile::kWarpColumns * config.warps_v;
  block.scratch.keys = reinterpret_cast<DecodeKey*>(shared);
  block.scratch.values = reinterpret_cast<DecodeValue*>(block.scratch.keys + block.tile_rows);
  block.scratch.sums = reinterpret_cast<float*>(block.scratch.values + block.tile_columns);
  const auto [head, first_column] = block_tile(p, block.tile_columns);
  block.head = head;
  block.first_column = first_column;
  block.policy = config.evict_first ? policy_evict_first() : policy_evict_normal();
  return block;
}

/// The thread's first element of the first tile of a state.
template <class State>
__device__ __forceinline__ State* state_at(const DecodeParams& p, const DecodeBlock& block,
                                           const DecodeLane& lane, std::int64_t slot) {
  return static_cast<State*>(p.state.data) + slot * p.state.sequence + block.head * p.state.head +
         lane.row * p.state.k + block.first_column + lane.column;
}

/// While the launch before this one ends, the blocks that wait for it, one a multiprocessor, ask
/// the L2 cache for their states. That launch may yet write them, or the slots: the cache is where
/// its writes are seen, and what is read here is used for nothing else.
template <class Tile>
__device__ __forceinline__ void prefetch_first_tiles(const DecodeParams& p,
                                                     const DecodeBlock& block,
                                                     const DecodeLane& lane) {
  if (blockIdx.y * gridDim.x + blockIdx.x >= multiprocessors()) return;
  const std::int64_t slot = slot_of(p, blockIdx.y);
  constexpr int kLineColumns = 128 / sizeof(typename Tile::State);
  const bool first_of_line = lane.column % kLineColumns == 0;
  if (slot == kPaddingSlot || !first_of_line || block.first_column + lane.column >= p.values)
    return;
  const auto* row = state_at<typename Tile::State>(p, block, lane, slot);
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r, row += Tile::kRowStep * p.state.k) {
    if (lane.row + r * Tile::kRowStep < p.keys) prefetch_line(row);
  }
}

/// What a thread loads of the token.
template <class T, class Tile>
struct LoadedToken {
  // So many rows a thread when the block has one warp along V.
  static constexpr int kKeys = (Tile::kWarpRows - 1) / DecodeConfig::kWarpThreads + 1;
  RawKey<T> keys[kKeys];
  RawValue<T> value;
  float head_log_decay;
  RawGate<T> g;
};

template <class T, class Tile>
__device__ __forceinline__ LoadedToken<T, Tile> read_token(const DecodeParams& p,
                                                           const DecodeBlock& block,
                                                           const DecodeRow& row,
                                                           std::int64_t first_row) {
  LoadedToken<T, Tile> token;
  auto at = static_cast<int>(threadIdx.x);
  if (at < block.tile_columns && block.first_column + at < p.values) {
    token.value = read_value<T>(p, p.fresh, row.at, 0, block.head, block.first_column + at);
  }
#pragma unroll
  for (int n = 0; n < token.kKeys; ++n, at += static_cast<int>(blockDim.x)) {
    if (at < block.tile_rows && first_row + at < p.keys) {
      token.keys[n] = read_fresh_key<T>(p, row.at, 0, block.head, first_row + at);
    }
  }
  token.g = read_gate<T>(p.fresh.g, row.at, 0, block.head, 0);
  token.head_log_decay = constant_decay(p.gamma, row.sequence, block.head);
  return token;
}

/// Puts the token where the whole block finds it.
template <class T, class Tile>
__device__ __forceinline__ void stage_token(const DecodeParams& p, const DecodeBlock& block,
                                            const LoadedToken<T, Tile>& token) {
  auto at = static_cast<int>(threadIdx.x);
  if (at < block.tile_columns) block.scratch.values[at] = value_of(p.fresh, token.value);
  const float head_log_decay = token.head_log_decay + log_decay_of(p.fresh.g, token.g);
#pragma unroll
  for (int n = 0; n < token.kKeys; ++n, at += static_cast<int>(blockDim.x)) {
    if (at >= block.tile_rows) continue;
    block.scratch.keys[at] =
        key_of(p, token.keys[n], head_log_decay + log_decay_of(p.fresh.gk, token.keys[n].gk));
  }
}

/// Sums over the warps along K, and writes the block's columns of o.
template <class T, class Tile>
__device__ __forceinline__ void write_output(const DecodeParams& p, const DecodeBlock& block,
                                             const DecodeLane& lane, std::int64_t b,
                                             const float (&o)[Tile::kColumns]) {
  float* const sums = block.scratch.sums;
  float* const to = &sums[lane.warp_k * block.tile_columns + lane.column];
  sum_over_lanes<Tile>(o, to, [](float* at, const auto& some) { store_sums(at, some); });
  __syncthreads();  // the sums are there
  const auto column = static_cast<int>(threadIdx.x);
  if (column >= block.tile_columns || block.first_column + column >= p.values) return;
  float sum = sums[column];
  for (int warp = 1; warp < block.warps_k; ++warp) {
    sum += sums[warp * block.tile_columns + column];
  }
  store_output<T>(p, b, 0, block.head, block.first_column + column, sum);
}

/// The output of a padding row.
template <class T>
__device__ __forceinline__ void write_zeros(const DecodeParams& p, const DecodeBlock& block,
                                            std::int64_t b) {
  const auto column = static_cast<int>(threadIdx.x);
  if (column >= block.tile_columns || block.first_column + column >= p.values) return;
  store_output<T>(p, b, 0, block.head, block.first_column + column, 0.0F);
}

/// Where rows of a batch run beside the launch before, one block waits for its end: who waits for
/// this launch then waits for both.
template <bool kPacked>
__device__ __forceinline__ void start_behind_previous_launch(const DecodeParams& p) {
#if __CUDA_ARCH__ >= 900
  if (kPacked && p.runs_beside_previous) return dependents_launch();
#endif
  take_over_from_previous_launch();
}
template <bool kPacked>
__device__ __forceinline__ void end_behind_previous_launch(const DecodeParams& p) {
#if __CUDA_ARCH__ >= 900
  const bool is_last = blockIdx.x + 1 == gridDim.x && blockIdx.y + 1 == gridDim.y;
  if (kPacked && p.runs_beside_previous && is_last) dependency_wait();
#endif
}

/// kPacked: the rows are packed sequences.
template <class T, class State, class Instance, bool kPacked>
__global__ void __launch_bounds__(DecodeConfig::kMaxThreads, DecodeConfig::kResidentBlocks)
    decode_row_tiles(const __grid_constant__ DecodeParams p, const DecodeConfig config) {
  using Tile = DecodeTile<State, Instance>;
  constexpr std::int64_t kLastRow = Tile::kLastRow;
  const DecodeBlock block = decode_block<Tile>(p, config);
  const DecodeLane lane = decode_lane<Tile>(config);
  const bool inside = block.first_column + lane.column < p.values;
  const std::int64_t step = Tile::kRowStep * p.state.k;
  const DecodeKey* const keys = block.scratch.keys + lane.row;
  const DecodeValue* const values = block.scratch.values + lane.column;
  if (config.overlap && !(kPacked && p.runs_beside_previous)) {
    prefetch_first_tiles<Tile>(p, block, lane);
  }
  start_behind_previous_launch<kPacked>(p);

  for (std::int64_t b = blockIdx.y; b < p.rows; b += gridDim.y) {
    const RawIndex slot = read_slot(p, b);
    LoadedToken<T, Tile> token;
    if constexpr (!kPacked) token = read_token<T, Tile>(p, block, {.at = b}, 0);
    const DecodeRow row = row_of<kPacked>(p, b, slot);
    if (kPacked && !row.exists) continue;
    if constexpr (kPacked) token = read_token<T, Tile>(p, block, row, 0);
    if (!kPacked && row.is_padding) {
      write_zeros<T>(p, block, row.at);
      continue;
    }
    const bool starts = !kPacked || row.start != kPaddingSlot;
    const bool ends = !kPacked || row.end != kPaddingSlot;
    const std::int64_t from_to = kPacked ? (row.start - row.end) * p.state.sequence : 0;
    State* to = state_at<State>(p, block, lane, row.end);
    float o[Tile::kColumns] = {};
    for (std::int64_t first = 0;;) {
      const std::int64_t below = p.keys - first - lane.row;
      const int rows_left = inside ? static_cast<int>(min(below, kLastRow + 1)) : 0;
      float4 s[Tile::kRows];
      load_tile<Tile>(s, to + from_to, step, starts ? rows_left : 0, block.policy);
      stage_token<T, Tile>(p, block, token);
      __syncthreads();  // the token is there
      if (p.fresh.gv.given()) {
        advance_tile<Tile, false, true>(s, o, keys, values, to, step, rows_left, ends,
                                        block.policy);
      } else if (ends && __all_sync(kFullWarp, rows_left > kLastRow)) {
        advance_tile<Tile, true, false>(s, o, keys, values, to, step, rows_left, true,
                                        block.policy);
      } else {
        advance_tile<Tile, false, false>(s, o, keys, values, to, step, rows_left, ends,
                                         block.policy);
      }
      first += block.tile_rows;
      if (first >= p.keys) break;
      token = read_token<T, Tile>(p, block, row, first);
      to += block.tile_rows * p.state.k;
      __syncthreads();  // all warps are done with the staged token
    }
    write_output<T, Tile>(p, block, lane, row.at, o);
  }
  end_behind_previous_launch<kPacked>(p);
}

template <class T, class State>
void launch_decode_row_tiles(const DecodeConfig& config, const DecodeParams& params,
                             cudaStream_t stream) {
  constexpr int kColumns = kVectorColumns<State>;
  const LaunchShape shape{.grid = decode_grid(params, config.tile_columns()),
                          .block = dim3(static_cast<unsigned>(config.threads())),
                          .shared_bytes = DecodeScratch::bytes(config, kColumns),
                          .overlaps_previous = config.overlap};
  with_instance(config, [&]<class Instance>() {
    if constexpr (DecodeConfig::has_tile(Instance::kValue, kColumns)) {
      with_value<false, true>(params.sequences.bounds != nullptr, [&]<bool kPacked>() {
        launch<decode_row_tiles<T, State, Instance, kPacked>>(shape, stream, params, config);
      });
    } else {
      throw_no_instance("this tile of 16-bit states");
    }
  });
}

}  // namespace attune::cuda::decode
