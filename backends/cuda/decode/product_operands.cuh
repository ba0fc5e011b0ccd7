// Operands of products on tensor cores: what a warp's part of a state is multiplied with.
#pragma once

#include "cuda/decode/product_factors.cuh"
#include "cuda/decode/product_tile.cuh"
#include "cuda/tiles/tf32.cuh"

namespace attune::cuda::decode {

/// What the tokens at places first + lane % 4, and the fourth behind it, have of the thread's columns
/// 2 m and 2 m + 1. exists(place): else it is zero.
template <class Tile>
struct TokenValues {
  float left[Tile::kColumns / 2][4];
};
template <class T, class Tile, class Exists>
__device__ __forceinline__ TokenValues<Tile> load_values(const ProductScratch<T>& scratch,
                                                         const StepLane& lane, int first,
                                                         const Exists& exists) {
  TokenValues<Tile> loaded;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int place = first + lane_index() % 4 + 4 * n;
    const bool is_there = exists(place);
    const T* const values = scratch.values + place * kTokenStride + lane.column;
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) {
      const auto* const from =
          reinterpret_cast<const std::uint32_t*>(values + Tile::column_offset(2 * m));
      const float2 pair = unpack<T>(is_there ? *from : 0);
      loaded.left[m][2 * n] = pair.x;
      loaded.left[m][2 * n + 1] = pair.y;
    }
  }
  return loaded;
}

/// d += left right, where the left side is of 16 bits and the right one is not.
__device__ __forceinline__ void multiply_exact(float (&d)[4], const float (&left)[4],
                                               const RightOperand<2>& right) {
  mma_m16n8k8(d, left, right.low[0], right.low[1]);
  mma_m16n8k8(d, left, right.high[0], right.high[1]);
}
/// What of a number TF32 does not hold.
__device__ __forceinline__ void low_parts(float (&low)[4], const float (&x)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) low[i] = x[i] - truncate_tf32(x[i]);
}

/// Where channels have decays of their own: tables of factors, which are sums of two numbers.
template <class T, class Tile>
struct ChannelOperands {
  const float *reads, *writes, *kept;
  TokenValues<Tile> values;

  __device__ __forceinline__ ChannelOperands(const StepParams&, const ProductScratch<T>& scratch,
                                             const StepLane& lane, const ProductRow& row) {
    const int first_eight = lane.warp_k * (Tile::kWarpRows / kFactorRows);
    reads = scratch.reads + first_eight * kFactorStride + lane_index() * 2;
    writes = scratch.writes + first_eight * kFactorStride + lane_index() * 2;
    kept = scratch.kept + lane.row;
    values = load_values<T, Tile>(scratch, lane, 0, [&](int place) { return place < row.stored; });
  }
  __device__ __forceinline__ static RightOperand<2> operand(const float* factors) {
    const float2 pair = *reinterpret_cast<const float2*>(factors);
    RightOperand<2> right;
    right.set(0, pair.x);
    right.set(1, pair.y);
    return right;
  }
  /// Of a warp's rows 8 n ...
  __device__ __forceinline__ RightOperand<2> read(int n) const {
    return operand(reads + n * kFactorStride);
  }
  __device__ __forceinline__ RightOperand<2> write(int n, int) const {
    return operand(writes + n * kFactorStride);
  }
  __device__ __forceinline__ float2 decay(int n) const {
    return *reinterpret_cast<const float2*>(kept + n * kFactorRows);
  }

  /// o += what the tokens read of two columns of two rows.
  __device__ __forceinline__ static void add_reads(float (&o)[4], const float (&state)[4],
                                                   const RightOperand<2>& read) {
    if constexpr (sizeof(typename Tile::State) == sizeof(float)) {
      float low[4];
      low_parts(low, state);
      mma_m16n8k8(o, low, read.high[0], read.high[1]);
    }
    multiply_exact(o, state, read);
  }
  /// Makes sums of reads into outputs.
  __device__ __forceinline__ void finish(float (&)[Tile::kColumns / 2][4]) const {}
};

/// Where a head has one decay a token: the tokens, whose factors are those of keys and of sums.
template <class T, class Tile>
struct HeadOperands {
  struct Queries {
    float x[2];
  };
  const T *queries, *keys;
  float kept;
  float of_keys[2], of_reads[2];
  TokenValues<Tile> values;

  __device__ __forceinline__ HeadOperands(const StepParams& p, const ProductScratch<T>& scratch,
                                          const StepLane& lane, const ProductRow& row) {
    const int g = lane_index() / 4, c = lane_index() % 4;
    const int first_row = lane.warp_k * Tile::kWarpRows;
    queries = scratch.queries + min(g, p.tokens - 1) * kTokenStride + first_row + 2 * c;
    keys = scratch.keys + c * kTokenStride + first_row + g;
    kept = scratch.writes[0];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      of_reads[n] = scratch.reads[p.committed_tokens + 2 * c + n];
      of_keys[n] = scratch.writes[c + 4 * n + 1];
    }
    values = load_values<T, Tile>(scratch, lane, 0, [&](int place) { return place < row.stored; });
  }
  /// Of a warp's rows 8 n ...
  __device__ __forceinline__ Queries read(int n) const {
    const float2 pair =
        unpack<T>(*reinterpret_cast<const std::uint32_t*>(queries + n * kFactorRows));
    return {pair.x, pair.y};
  }
  __device__ __forceinline__ RightOperand<2> write(int n, int stored) const {
    RightOperand<2> right;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const T* const key = keys + 4 * i * kTokenStride + n * kFactorRows;
      const bool is_stored = lane_index() % 4 + 4 * i < stored;
      right.set(i, is_stored ? to_float(*key) * of_keys[i] : 0);
    }
    return right;
  }
  __device__ __forceinline__ float2 decay(int) const { return {kept, kept}; }

  __device__ __forceinline__ static void add_reads(float (&o)[4], const float (&state)[4],
                                                   const Queries& read) {
    if constexpr (sizeof(typename Tile::State) == sizeof(float)) {
      float low[4];
      low_parts(low, state);
      mma_m16n8k8(o, low, read.x[0], read.x[1]);
    }
    mma_m16n8k8(o, state, read.x[0], read.x[1]);
  }
  __device__ __forceinline__ void finish(float (&o)[Tile::kColumns / 2][4]) const {
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o[m][e] *= of_reads[e % 2];
    }
  }
};

template <class T, class Tile, bool kOfChannels>
using ProductOperands =
    std::conditional_t<kOfChannels, ChannelOperands<T, Tile>, HeadOperands<T, Tile>>;

}  // namespace attune::cuda::decode
