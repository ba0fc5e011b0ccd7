// Sums of what tokens read, over the warps of a block, and the outputs that they become.
#pragma once

#include "cuda/decode/product_tile.cuh"

namespace attune::cuda::decode {

/// Where a warp's sums are.
template <class T>
__device__ __forceinline__ float* warp_sums(const ProductShape& shape,
                                            const ProductScratch<T>& scratch, int warp) {
  return reinterpret_cast<float*>(scratch.tile + shape.sums + warp * shape.warp_sums);
}

/// Where that is which tokens read of each other, of the columns that warps `warp_v` along V have.
template <class Tile, class T>
__device__ __forceinline__ float* score_sums(const StepParams& p, const ProductShape& shape,
                                             const ProductScratch<T>& scratch, int warp_v) {
  return reinterpret_cast<float*>(scratch.tile + shape.score_sums) +
         warp_v * p.tokens * Tile::kSumStride;
}

/// Puts what a warp has summed up where all sums are added up, or adds it to that of the tiles before.
template <class Tile>
__device__ __forceinline__ void put_product_sums(float* sums, int tokens,
                                                 const float (&o)[Tile::kColumns / 2][4],
                                                 bool first_tile) {
  const int c = lane_index() % 4;
  sums += lane_index() / 4 * Tile::kVector;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int t = 2 * c + e;
    if (t >= tokens) continue;
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) {
      auto& pair =
          *reinterpret_cast<float2*>(sums + t * Tile::kSumStride + Tile::column_offset(2 * m));
      const float2 before = first_tile ? float2{0, 0} : pair;
      pair = {before.x + o[m][e], before.y + o[m][2 + e]};
    }
  }
}

/// o of a tile's columns, four a thread: the sums over its warps and of scores, or zeros of a padding
/// row.
template <class T, class Tile>
__device__ __forceinline__ void write_product_output(const StepParams& p, const ProductShape& shape,
                                                     const ProductScratch<T>& scratch,
                                                     const ProductBlock& at, bool is_padding) {
  constexpr int kColumns = 4;
  constexpr unsigned kThreads = Tile::kWarpColumns / kColumns;  // of a warp's columns
  const auto tokens_of = [&](unsigned threads) {
    return static_cast<int>(shape.warps_v == 2 ? threads / (2 * kThreads) : threads / kThreads);
  };
  const int warp_v = shape.warps_v == 2 ? static_cast<int>(threadIdx.x / kThreads % 2) : 0;
  const int in_warp = static_cast<int>(threadIdx.x % kThreads) * kColumns;
  const int column = warp_v * Tile::kWarpColumns + in_warp;
  if (column >= at.columns) return;
  const int step = tokens_of(blockDim.x);
  for (int t = tokens_of(threadIdx.x); t < p.tokens; t += step) {
    float4 sum = {0, 0, 0, 0};
    const auto add = [&](const float* sums) {
      const float4 part = *reinterpret_cast<const float4*>(sums + t * Tile::kSumStride + in_warp);
      sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
    };
    if (!is_padding) add(score_sums<Tile>(p, shape, scratch, warp_v));
    for (int warp = warp_v; warp < shape.warps_k * shape.warps_v && !is_padding;
         warp += shape.warps_v) {
      add(warp_sums(shape, scratch, warp));
    }
    T* const to = static_cast<T*>(p.o.data) + row_of(p.o, at.b, t, at.head);
    *reinterpret_cast<uint2*>(to + at.first_column + column) = {pack<T>(sum.x, sum.y),
                                                                pack<T>(sum.z, sum.w)};
  }
}

}  // namespace attune::cuda::decode
