// The kernel of pairs: its shared memory, what its threads hold, and its blocks of matrix products.
#pragma once

#include "cuda/chunk_backward/tiles.cuh"
#include "cuda/gla_backward/gates.cuh"

namespace attune::cuda::gla_backward {

using chunk_backward::block_address;
using chunk_backward::fold_lanes;
using chunk_backward::kPanelBytes;
using chunk_backward::Tile;
using chunk_backward::transposed_block_address;

inline constexpr int kLevels = 3;  // halves of 8, 16 and 32 tokens
inline constexpr int kBlock = 16;  // rows and columns of a block of matrix products

template <int kD>
struct PairsShared {
  Tile<kD> u, z;
  // Of 64 channels of the gated side: x decayed from the boundary, or y decayed to it; then what
  // these tokens get from the other half. By position; so are the scores.
  Tile<kPanelChannels> halves[kLevels];
  Tile<kPanelChannels> p, a;              // [i][j], with the scale
  float p_near[kBlockWarps][kRun][kRun];  // within 8 tokens, [j][i]
  float a_near[kBlockWarps][kRun][kRun];
  float2 decays[kBlockWarps][kWarpSize];
  float2 reads[kBlockWarps][kWarpSize];               // warps' sums of what enters the chunk
  float2 writes[kBlockWarps][kWarpSize];              // and of what leaves it
  float2 crossings[kLevels][kBlockWarps][kWarpSize];  // and of what goes between halves
  float parts[kBlockWarps];
  float far[2][2][4][kBlockThreads];  // sums of A between halves, by thread
  ChunkPlace chunk;                   // here, for few registers are left for it
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
