// The kernels of pairs: their shared memory, what threads hold, and blocks of matrix products.
#pragma once

#include "cuda/chunk_backward/tiles.cuh"
#include "cuda/gla_backward/gates.cuh"

namespace attune::cuda::gla_backward {

using chunk_backward::block_address;
using chunk_backward::fold_lanes;
using chunk_backward::kPanelBytes;
using chunk_backward::Tile;
using chunk_backward::transposed_block_address;

inline constexpr int kBlock = 16;  // rows and columns of a block of matrix products

/// What all kernels of pairs have in shared memory; by position.
struct PairsTiles {
  Tile<kPanelChannels> p;                 // [i][j], with the scale; then A
  float2 reads[kBlockWarps][kWarpSize];   // warps' sums of what is read, for the gates' gradients
  float2 writes[kBlockWarps][kWarpSize];  // and of what is written
  float shared_sums[kBlockWarps][kRun];   // gradients of what all channels share, by token
  float parts[kBlockWarps];
  ChunkPlace chunk;  // here, for few registers are left for it
};

/// Two fragments of 16 x 16 blocks: the left operand of a product, and the right one, of two
/// columns of 8, of which fragment 2 n and 2 n + 1 are column n's.
template <bool kTransposed>
__device__ __forceinline__ void load_left(std::uint32_t (&a)[4], std::uint32_t panel, int lane,
                                          int row, int column) {
  if constexpr (kTransposed) {  // of the block [column][row]
    load_matrices_transposed(a, transposed_block_address(panel, lane, column, row));
  } else {
    load_matrices(a, block_address(panel, lane, row, column));
  }
}
/// Rows of memory are columns of the operand.
__device__ __forceinline__ void load_right_rows(std::uint32_t (&b)[4], std::uint32_t panel,
                                                int lane, int row, int column) {
  load_matrices(b, transposed_block_address(panel, lane, row, column));
}
/// Rows of memory are summed over.
__device__ __forceinline__ void load_right(std::uint32_t (&b)[4], std::uint32_t panel, int lane,
                                           int row, int column) {
  load_matrices_transposed(b, block_address(panel, lane, row, column));
}
/// Writes a block of scores after `f` has been applied to each: f(row, column, score).
template <class Element, class F>
__device__ __forceinline__ void store_scores(Tile<kPanelChannels>& panel, float (&scores)[2][4],
                                             int lane, int row_block, int column_block, F&& f) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int row = row_block * kBlock + lane / 4 + e % 2 * 8;
    const int column = column_block * kBlock + e / 2 * 8 + lane % 4 * 2;
    float* const pair = &scores[e / 2][e % 2 * 2];
    f(row, column, pair[0]);
    f(row, column + 1, pair[1]);
    *reinterpret_cast<std::uint32_t*>(panel.bytes[0] + tile_byte(row, column)) =
        pack<Element>(pair[0], pair[1]);
  }
}
/// d [16, 16] += a b.
template <class T>
__device__ __forceinline__ void multiply_block(float (&d)[2][4], const std::uint32_t (&a)[4],
                                               const std::uint32_t (&b)[4]) {
  mma_m16n8k16<T>(d[0], a, b[0], b[1]);
  mma_m16n8k16<T>(d[1], a, b[2], b[3]);
}

/// Of two channels over this warp's eight positions.
struct Run {
  std::uint32_t x[kRun];
  std::uint32_t y[kRun];
  float2 decay[kRun];
  float2 log_over;      // of their product, base 2
  unsigned resets = 0;  // bit i: the decay at i is 0; bit 8 + i: that of the second channel

  __device__ __forceinline__ float2 over() const {
    float2 product = decay[0];
#pragma unroll
    for (int i = 1; i < kRun; ++i) product = times(product, decay[i]);
    return product;
  }
  /// Makes the compiler compute again what it would keep: products, and elements unpacked.
  __device__ __forceinline__ void forget() {
    forget_x();
#pragma unroll
    for (int i = 0; i < kRun; ++i) asm volatile("" : "+r"(y[i]));
  }
  __device__ __forceinline__ void forget_x() {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      asm volatile("" : "+r"(x[i]), "+f"(decay[i].x), "+f"(decay[i].y));
    }
  }
};

}  // namespace attune::cuda::gla_backward
