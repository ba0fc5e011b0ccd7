// One decode step on states whose rows are contiguous.
//
// A block takes one head of one row of the batch, 32 * warps_v columns of its state. All of a
// tile's loads are under way before anything else is read, which is what keeps the memory busy: a
// thread holds `rows` vectors of four columns. States of more rows than the block has are taken
// tile by tile. Sums over K are taken by threads, then lanes, then warps, always in the same order.
#pragma once

#include "cuda/decode/decode_token.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda {

/// The token in the block's shared memory, and its sums there.
struct DecodeScratch {
  DecodeKey* keys;      // [tile_rows]
  DecodeValue* values;  // [tile_columns]
  float* sums;          // [warps_k, tile_columns]

  static std::size_t bytes(const DecodeConfig& c) {
    const auto columns = static_cast<std::size_t>(c.tile_columns());
    const std::size_t needed =
        sizeof(DecodeKey) * static_cast<std::size_t>(c.tile_rows()) +
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

/// Where a thread stands in its block's tile; `row` is the first of its rows, four apart.
struct DecodeLane {
  int warp_k, row, column;
};

__device__ __forceinline__ DecodeBlock decode_block(const DecodeParams& p,
                                                    const DecodeConfig& config) {
  extern __shared__ __align__(16) std::byte shared[];
  DecodeBlock block;
  block.warps_k = config.warps_k;
  block.tile_rows = config.tile_rows();
  block.tile_columns = config.tile_columns();
  block.scratch.keys = reinterpret_cast<DecodeKey*>(shared);
  block.scratch.values = reinterpret_cast<DecodeValue*>(block.scratch.keys + block.tile_rows);
  block.scratch.sums = reinterpret_cast<float*>(block.scratch.values + block.tile_columns);
  const int tiles = tile_count(p, block.tile_columns);
  block.head = static_cast<int>(blockIdx.x) / tiles;
  block.first_column = static_cast<int>(blockIdx.x) % tiles * block.tile_columns;
  block.policy = config.evict_first ? policy_evict_first() : policy_evict_normal();
  return block;
}

template <int kRows>
__device__ __forceinline__ DecodeLane decode_lane(const DecodeConfig& config) {
  using C = DecodeConfig;
  constexpr int kLanesAcross = C::kWarpColumns / C::kThreadColumns;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warp_k = warp / config.warps_v;
  const int warp_v = warp % config.warps_v;
  return {warp_k, warp_k * C::kWarpRows * kRows + lane / kLanesAcross,
          warp_v * C::kWarpColumns + lane % kLanesAcross * C::kThreadColumns};
}

/// Where the thread's part of the first tile of a state begins.
__device__ __forceinline__ float* state_at(const DecodeParams& p, const DecodeBlock& block,
                                           const DecodeLane& lane, std::int64_t slot) {
  return p.state.data + slot * p.state.sequence + block.head * p.state.head + lane.row * p.state.k +
         block.first_column + lane.column;
}

/// While the launch before this one ends, the blocks that wait for it, one a multiprocessor, ask
/// the L2 cache for their states. That launch may yet write them, or the slots: the cache is where
/// its writes are seen, and what is read here is used for nothing else.
template <int kRows>
__device__ __forceinline__ void prefetch_first_tiles(const DecodeParams& p,
                                                     const DecodeBlock& block,
                                                     const DecodeLane& lane) {
  if (blockIdx.y * gridDim.x + blockIdx.x >= multiprocessors()) return;
  const std::int64_t slot = slot_of(p, blockIdx.y);
  const bool first_of_line = lane.column % DecodeConfig::kWarpColumns == 0;
  if (slot == kPaddingSlot || !first_of_line || block.first_column + lane.column >= p.values)
    return;
  const float* row = state_at(p, block, lane, slot);
#pragma unroll
  for (int r = 0; r < kRows; ++r, row += DecodeConfig::kWarpRows * p.state.k) {
    if (lane.row + r * DecodeConfig::kWarpRows < p.keys) prefetch_line(row);
  }
}

/// The thread's part of a tile; nothing is read beyond `rows_left` rows.
template <int kRows>
__device__ __forceinline__ void load_tile(float4 (&s)[kRows], const float* from, std::int64_t step,
                                          int rows_left, std::uint64_t policy) {
#pragma unroll
  for (int r = 0; r < kRows; ++r, from += step) {
    s[r] = make_float4(0, 0, 0, 0);
    if (r * DecodeConfig::kWarpRows < rows_left) s[r] = load_float4(from, policy);
  }
}

/// A thread's part of the token, on its way.
template <class T, int kRows>
struct TokenPart {
  // As many as there are for each thread when the block has one warp along V.
  static constexpr int kKeys = kRows * DecodeConfig::kWarpRows / DecodeConfig::kWarpThreads;
  RawKey<T> keys[kKeys];
  RawValue<T> value;
  float head_log_decay;
  RawGate<T> g;
};

template <class T, int kRows>
__device__ __forceinline__ TokenPart<T, kRows> read_token(const DecodeParams& p,
                                                          const DecodeBlock& block, std::int64_t b,
                                                          std::int64_t first_row) {
  TokenPart<T, kRows> part;
  auto at = static_cast<int>(threadIdx.x);
  if (at < block.tile_columns && block.first_column + at < p.values) {
    part.value = read_value<T>(p, b, block.head, block.first_column + at);
  }
#pragma unroll
  for (int n = 0; n < part.kKeys; ++n, at += static_cast<int>(blockDim.x)) {
    if (at < block.tile_rows && first_row + at < p.keys) {
      part.keys[n] = read_key<T>(p, b, block.head, first_row + at);
    }
  }
  part.g = read_gate<T>(p.g, b, block.head, 0);
  part.head_log_decay = constant_decay(p.gamma, 0, block.head);
  return part;
}

/// Puts the token where the whole block finds it.
template <class T, int kRows>
__device__ __forceinline__ void stage_token(const DecodeParams& p, const DecodeBlock& block,
                                            const TokenPart<T, kRows>& part) {
  auto at = static_cast<int>(threadIdx.x);
  if (at < block.tile_columns) block.scratch.values[at] = value_of(p, part.value);
  const float head_log_decay = part.head_log_decay + log_decay_of(p.g, part.g);
#pragma unroll
  for (int n = 0; n < part.kKeys; ++n, at += static_cast<int>(blockDim.x)) {
    if (at < block.tile_rows) block.scratch.keys[at] = key_of(p, part.keys[n], head_log_decay);
  }
}

/// Decay, write, read: the tile goes back to memory, and `o` gets what the token reads of it.
/// kFull: every thread of the warp has all of its rows. kValueGate: there is a gv.
template <bool kFull, bool kValueGate, int kRows>
__device__ __forceinline__ void advance_tile(float4 (&s)[kRows], float (&o)[4],
                                             const DecodeKey* keys, const DecodeValue* values,
                                             float* to, std::int64_t step, int rows_left,
                                             std::uint64_t policy) {
  const DecodeValue value[4] = {values[0], values[1], values[2], values[3]};
#pragma unroll
  for (int r = 0; r < kRows; ++r, to += step) {
    if (!kFull && r * DecodeConfig::kWarpRows >= rows_left) break;
    const DecodeKey key = keys[r * DecodeConfig::kWarpRows];
    s[r].x = advanced(s[r].x, key, value[0], kValueGate);
    s[r].y = advanced(s[r].y, key, value[1], kValueGate);
    s[r].z = advanced(s[r].z, key, value[2], kValueGate);
    s[r].w = advanced(s[r].w, key, value[3], kValueGate);
    store_float4(to, s[r], policy);
    o[0] = fmaf(key.q, s[r].x, o[0]);
    o[1] = fmaf(key.q, s[r].y, o[1]);
    o[2] = fmaf(key.q, s[r].z, o[2]);
    o[3] = fmaf(key.q, s[r].w, o[3]);
  }
}

/// The sum of a column over the four rows of lanes: of column_of_lane()'s.
__device__ __forceinline__ float sum_over_lanes(const float (&o)[4]) {
  const bool right = (threadIdx.x & 16U) != 0;
  const float even = (right ? o[2] : o[0]) + __shfl_xor_sync(kFullWarp, right ? o[0] : o[2], 16);
  const float odd = (right ? o[3] : o[1]) + __shfl_xor_sync(kFullWarp, right ? o[1] : o[3], 16);
  const bool second = (threadIdx.x & 8U) != 0;
  return (second ? odd : even) + __shfl_xor_sync(kFullWarp, second ? even : odd, 8);
}
/// Counted from the thread's first column.
__device__ __forceinline__ int column_of_lane() {
  return static_cast<int>((threadIdx.x & 16U) / 8U + (threadIdx.x & 8U) / 8U);
}

/// Sums over the warps along K, and writes the block's part of o.
template <class T>
__device__ __forceinline__ void write_output(const DecodeParams& p, const DecodeBlock& block,
                                             const DecodeLane& lane, std::int64_t b,
                                             const float (&o)[4]) {
  float* const sums = block.scratch.sums;
  sums[lane.warp_k * block.tile_columns + lane.column + column_of_lane()] = sum_over_lanes(o);
  __syncthreads();  // the sums are there
  const auto column = static_cast<int>(threadIdx.x);
  if (column >= block.tile_columns || block.first_column + column >= p.values) return;
  float sum = sums[column];
  for (int warp = 1; warp < block.warps_k; ++warp) {
    sum += sums[warp * block.tile_columns + column];
  }
  store_output<T>(p, b, block.head, block.first_column + column, sum);
}

/// What a padding row gets.
template <class T>
__device__ __forceinline__ void write_zeros(const DecodeParams& p, const DecodeBlock& block,
                                            std::int64_t b) {
  const auto column = static_cast<int>(threadIdx.x);
  if (column >= block.tile_columns || block.first_column + column >= p.values) return;
  store_output<T>(p, b, block.head, block.first_column + column, 0.0F);
}

template <class T, class Instance>
__global__ void __launch_bounds__(DecodeConfig::kMostThreads, DecodeConfig::kResidentBlocks)
    decode_row_tiles(const __grid_constant__ DecodeParams p, const DecodeConfig config) {
  constexpr int kRows = Instance::kValue.rows;
  constexpr std::int64_t kLastRow = (kRows - 1) * DecodeConfig::kWarpRows;  // of a thread
  const DecodeBlock block = decode_block(p, config);
  const DecodeLane lane = decode_lane<kRows>(config);
  const bool inside = block.first_column + lane.column < p.values;
  const std::int64_t step = DecodeConfig::kWarpRows * p.state.k;
  const DecodeKey* const keys = block.scratch.keys + lane.row;
  const DecodeValue* const values = block.scratch.values + lane.column;
  if (config.overlap) prefetch_first_tiles<kRows>(p, block, lane);
  take_over_from_previous_launch();

  for (std::int64_t b = blockIdx.y; b < p.rows; b += gridDim.y) {
    const std::int64_t slot = slot_of(p, b);
    TokenPart<T, kRows> token = read_token<T, kRows>(p, block, b, 0);
    if (slot == kPaddingSlot) {
      write_zeros<T>(p, block, b);
      continue;
    }
    float* state = state_at(p, block, lane, slot);
    float o[4] = {0, 0, 0, 0};
    for (std::int64_t first = 0;;) {
      const std::int64_t below = p.keys - first - lane.row;
      const int rows_left = inside ? static_cast<int>(min(below, kLastRow + 1)) : 0;
      float4 s[kRows];
      load_tile(s, state, step, rows_left, block.policy);
      stage_token(p, block, token);
      __syncthreads();  // the token is there
      if (p.gv.given()) {
        advance_tile<false, true>(s, o, keys, values, state, step, rows_left, block.policy);
      } else if (__all_sync(kFullWarp, rows_left > kLastRow)) {
        advance_tile<true, false>(s, o, keys, values, state, step, rows_left, block.policy);
      } else {
        advance_tile<false, false>(s, o, keys, values, state, step, rows_left, block.policy);
      }
      first += block.tile_rows;
      if (first >= p.keys) break;
      token = read_token<T, kRows>(p, block, b, first);
      state += block.tile_rows * p.state.k;
      __syncthreads();  // nobody needs the token's part before
    }
    write_output<T>(p, block, lane, b, o);
  }
}

template <class T>
void launch_decode_row_tiles(const DecodeConfig& config, const DecodeParams& params,
                             cudaStream_t stream) {
  const LaunchShape shape{.grid = decode_grid(params, config.tile_columns()),
                          .block = dim3(static_cast<unsigned>(config.threads())),
                          .shared_bytes = DecodeScratch::bytes(config),
                          .overlaps_previous = config.overlap};
  dispatch<DecodeConfig>(config, [&]<class Instance>() {
    launch<decode_row_tiles<T, Instance>>(shape, stream, params, config);
  });
}

}  // namespace attune::cuda
