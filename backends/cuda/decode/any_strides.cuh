// A step of one token on states in f32 of any strides: stored [V, K], unaligned, or with gaps.
//
// A block takes one head of one row of the batch and 32 columns of its state, 128 rows at a time.
// The lanes of a warp lie along whichever of the state's dimensions has its elements closer
// together, so that both [K, V] and [V, K] are read in whole lines.
#pragma once

#include <cstdlib>

#include "cuda/decode/token.cuh"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/exchange.cuh"

namespace attune::cuda::decode {

inline constexpr int kStridedThreads = 256;
inline constexpr int kStridedWarps = kStridedThreads / kWarpSize;
inline constexpr int kStridedRows = 128;                               // of a state at a time
inline constexpr int kStridedColumns = kWarpSize;                      // of a block
inline constexpr int kWarpsColumns = kStridedColumns / kStridedWarps;  // when lanes lie along K
inline constexpr int kElements = kStridedRows * kStridedColumns / kStridedThreads;  // of a thread

struct StridedScratch {
  DecodeKey keys[kStridedRows];
  DecodeValue values[kStridedColumns];
  float sums[kStridedWarps][kStridedColumns];
};

/// Which elements of a block's tile a thread has, and which of its sums they add to.
template <bool kAlongV>
struct StridedLane {
  int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  int warp = static_cast<int>(threadIdx.x) / kWarpSize;

  static constexpr int kSums = kAlongV ? 1 : kWarpsColumns;
  __device__ int row(int e) const {
    return kAlongV ? warp + kStridedWarps * e : lane + kWarpSize * (e / kWarpsColumns);
  }
  __device__ int column(int e) const { return kAlongV ? lane : warp * kWarpsColumns + sum(e); }
  __device__ static constexpr int sum(int e) { return kAlongV ? 0 : e % kWarpsColumns; }
};

template <class T>
__device__ __forceinline__ void stage_token(const DecodeParams& p, StridedScratch& scratch,
                                            const DecodeRow& row, int head, std::int64_t first_row,
                                            std::int64_t first_column) {
  const auto at = static_cast<int>(threadIdx.x);
  if (at < kStridedRows && first_row + at < p.keys) {
    const float head_log_decay =
        constant_decay(p.gamma, row.sequence, head) +
        log_decay_of(p.fresh.g, read_gate<T>(p.fresh.g, row.at, 0, head, 0));
    const RawKey<T> key = read_fresh_key<T>(p, row.at, 0, head, first_row + at);
    scratch.keys[at] = key_of(p, key, head_log_decay + log_decay_of(p.fresh.gk, key.gk));
  }
  if (at < kStridedColumns && first_column + at < p.values) {
    scratch.values[at] =
        value_of(p.fresh, read_value<T>(p, p.fresh, row.at, 0, head, first_column + at));
  }
}

/// Decay, write, read of a tile of `rows` x `columns`, at `offset` from where the row's state is
/// read and written; a null `from` is zeros, a null `to` nowhere.
template <bool kAlongV>
__device__ __forceinline__ void advance_tile(const DecodeParams& p, const StridedScratch& scratch,
                                             const float* from, float* to, std::int64_t offset,
                                             std::int64_t rows, std::int64_t columns,
                                             float (&o)[StridedLane<kAlongV>::kSums]) {
  const StridedLane<kAlongV> lane;
  const auto at = [&](int e) {
    return offset + lane.row(e) * p.state.k + lane.column(e) * p.state.v;
  };
  float s[kElements];
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const bool inside = from != nullptr && lane.row(e) < rows && lane.column(e) < columns;
    s[e] = inside ? from[at(e)] : 0.0F;
  }
  __syncthreads();  // the token is there
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    if (lane.row(e) >= rows || lane.column(e) >= columns) continue;
    const DecodeKey key = scratch.keys[lane.row(e)];
    s[e] = advanced(s[e], key, scratch.values[lane.column(e)], p.fresh.gv.given());
    if (to != nullptr) to[at(e)] = s[e];
    o[lane.sum(e)] = fmaf(key.q, s[e], o[lane.sum(e)]);
  }
}

/// o of one column, in the threads of the first warp.
template <bool kAlongV>
__device__ __forceinline__ float sum_over_block(StridedScratch& scratch,
                                                const float (&o)[StridedLane<kAlongV>::kSums]) {
  const StridedLane<kAlongV> lane;
#pragma unroll
  for (int c = 0; c < StridedLane<kAlongV>::kSums; ++c) {
    float sum = o[c];
    if constexpr (!kAlongV) sum = warp_sum(sum);
    if (kAlongV || lane.lane == 0) {
      scratch.sums[kAlongV ? lane.warp : 0][lane.column(c)] = sum;
    }
  }
  __syncthreads();  // the sums are there
  float total = scratch.sums[0][lane.lane];
  for (int warp = 1; kAlongV && warp < kStridedWarps; ++warp)
    total += scratch.sums[warp][lane.lane];
  return total;
}

/// A block's columns of a head's state; null for kPaddingSlot.
__device__ __forceinline__ float* strided_state(const DecodeParams& p, int head,
                                                std::int64_t first_column, std::int64_t slot) {
  if (slot == kPaddingSlot) return nullptr;
  return static_cast<float*>(p.state.data) + slot * p.state.sequence + head * p.state.head +
         first_column * p.state.v;
}

template <class T, bool kAlongV>
__global__ void __launch_bounds__(kStridedThreads)
    decode_any_strides(const __grid_constant__ DecodeParams p) {
  __shared__ StridedScratch scratch;
  const auto [head, first_column] = block_tile(p, kStridedColumns);
  const std::int64_t columns = p.values - first_column;
  const bool writes = threadIdx.x < kStridedColumns && threadIdx.x < columns;
  take_over_from_previous_launch();

  for (std::int64_t b = blockIdx.y; b < p.rows; b += gridDim.y) {
    const DecodeRow row = row_of(p, b, read_slot(p, b));
    if (!row.exists) continue;
    if (row.is_padding) {
      if (writes) store_output<T>(p, row.at, 0, head, first_column + threadIdx.x, 0.0F);
      continue;
    }
    const float* const from = strided_state(p, head, first_column, row.start);
    float* const to = strided_state(p, head, first_column, row.end);
    float o[StridedLane<kAlongV>::kSums] = {};
    for (std::int64_t first = 0; first < p.keys; first += kStridedRows) {
      __syncthreads();  // all warps are done with the token and the sums
      stage_token<T>(p, scratch, row, head, first, first_column);
      advance_tile<kAlongV>(p, scratch, from, to, first * p.state.k, p.keys - first, columns, o);
    }
    const float sum = sum_over_block<kAlongV>(scratch, o);
    if (writes) store_output<T>(p, row.at, 0, head, first_column + threadIdx.x, sum);
  }
}

template <class T>
void launch_decode_any_strides(const DecodeConfig& config, const DecodeParams& params,
                               cudaStream_t stream) {
  const LaunchShape shape{.grid = decode_grid(params, kStridedColumns),
                          .block = dim3(kStridedThreads),
                          .overlaps_previous = config.overlap};
  if (std::abs(params.state.v) <= std::abs(params.state.k)) {
    launch<decode_any_strides<T, true>>(shape, stream, params);
  } else {
    launch<decode_any_strides<T, false>>(shape, stream, params);
  }
}

}  // namespace attune::cuda::decode
