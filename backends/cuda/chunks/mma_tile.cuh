// Tiles of 16-bit elements in shared memory, and the fragments that warps hold of them for
// mma.sync.
//
// A tile has a row for each token of a chunk and is cut into panels of 64 channels. Rows of a panel
// are swizzled: the eight rows of any 8 x 8 matrix fall into different banks.
#pragma once

#include "cuda/chunks/segment_walk.hpp"
#include "cuda/tiles/exchange.cuh"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda {

/// A warp's 16 value channels of S^T as the accumulators of mma lie: element [j][e] of a lane is
/// S[k][v] where k = 8 j + 2 (lane % 4) + e % 2 and v = lane / 4 + 8 (e / 2).
template <class Shape>
using State = float[Shape::kKeys / 8][4];
/// The same of O^T, with tokens for k.
template <class Shape>
using Outputs = float[Shape::kChunk / 8][4];

/// The first of a warp's value channels within its block's.
__device__ __forceinline__ int own_channel() {
  return static_cast<int>(threadIdx.x) / kWarpSize * kValuesPerWarp;
}

/// A tile in shared memory, and this lane's place in the 16 x 16 blocks it is read by.
template <class Shape>
class Tile {
 public:
  __device__ explicit Tile(std::uint32_t address) : address_(address) {}

  /// Where this lane's row of block (row, channel) lies when the four 8 x 8 matrices of the block
  /// are counted down its rows first: an `a` operand, or a transposed `b`.
  __device__ std::uint32_t down(int row, int channel) const {
    const unsigned lane = threadIdx.x % kWarpSize;
    return at(row + lane % 16, channel * 2 + lane / 16 * 16);
  }
  /// The same counted across its channels first: a `b` operand, or a transposed `a`.
  __device__ std::uint32_t across(int row, int channel) const {
    const unsigned lane = threadIdx.x % kWarpSize;
    return at(row + lane / 16 * 8 + lane % 8, channel * 2 + lane / 8 % 2 * 16);
  }
  __device__ std::uint32_t at(unsigned row, unsigned byte) const {
    return address_ + byte / kPanelRowBytes * Shape::kPanelBytes +
           swizzled(row, byte % kPanelRowBytes);
  }

 private:
  std::uint32_t address_;
};

/// Stores the transposes of four 8 x 8 matrices as a 16 x 16 block, counted across its channels
/// first.
template <class Shape>
__device__ __forceinline__ void store_transposed(const Tile<Shape>& to, int row, int channel,
                                                 const std::uint32_t (&matrices)[4]) {
#if __CUDA_ARCH__ >= 900
  store_matrices_transposed(to.across(row, channel), matrices[0], matrices[1], matrices[2],
                            matrices[3]);
#else
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int m = 0; m < 4; ++m) {
    store_shared_4(to.at(row + m / 2 * 8 + lane / 4, channel * 2 + m % 2 * 16 + lane % 4 * 4),
                   transpose_matrix(matrices[m]));
  }
#endif
}

/// Writes a warp's part of O^T, 16 value channels by kChunk tokens, to its own columns of a tile.
template <class T, class Shape>
__device__ __forceinline__ void store_outputs(const Tile<Shape>& to, int channel,
                                              const Outputs<Shape>& outputs) {
#pragma unroll
  for (int block = 0; block < Shape::kChunk / 16; ++block) {
    const auto& low = outputs[2 * block];
    const auto& high = outputs[2 * block + 1];
    const std::uint32_t matrices[4] = {pack<T>(low[0], low[1]), pack<T>(low[2], low[3]),
                                       pack<T>(high[0], high[1]), pack<T>(high[2], high[3])};
    store_transposed(to, 16 * block, channel, matrices);
  }
}

/// A lane's row and first channel of 16 x 16 that its warp copies: two lanes a row, and the rows of
/// eight lanes are all even or all odd, or they would share banks.
__device__ __forceinline__ int copied_row() {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  return lane / 16 * 8 + lane / 2 % 4 * 2 + lane / 8 % 2;
}
__device__ __forceinline__ int copied_channel() {
  return static_cast<int>(threadIdx.x) % 2 * kChannelsPerCopy;
}

/// Stores one 16 x 16 block of P as score_of(row, column, product), zeros above the diagonal. The
/// products are sums over even steps and over odd ones, of two blocks of eight columns.
template <class T, class Shape, class Score>
__device__ __forceinline__ void store_scores(const Tile<Shape>& scores,
                                             const float (&products)[2][2][4], int row_block,
                                             int column_block, Score&& score_of) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int half = 0; half < 4; ++half) {  // 8 rows of 8 columns
    const int row = 16 * row_block + lane / 4 + half / 2 * 8;
    const int column = 16 * column_block + lane % 4 * 2 + half % 2 * 8;
    float pair[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int at = half / 2 * 2 + e;
      const float product = products[0][half % 2][at] + products[1][half % 2][at];
      const float score = score_of(row, column + e, product);
      pair[e] = column + e <= row ? score : 0.0F;
    }
    store_shared_4(scores.at(row, column * 2), pack<T>(pair[0], pair[1]));
  }
}

/// O^T += V^T P^T for the 16 tokens j of `step`; `values` is V^T of them.
template <class T, class Shape>
__device__ __forceinline__ void add_chunk(Outputs<Shape>& outputs, const std::uint32_t (&values)[4],
                                          const Tile<Shape>& scores, int step) {
#pragma unroll
  for (int n = 0; n < Shape::kChunk / 16; ++n) {
    if (n < step) continue;  // tokens before those
    std::uint32_t b[4];
    load_matrices(b, scores.across(16 * n, 16 * step));
    mma_m16n8k16<T>(outputs[2 * n], values, b[0], b[1]);
    mma_m16n8k16<T>(outputs[2 * n + 1], values, b[2], b[3]);
  }
}

}  // namespace attune::cuda
