// P, the weights between the tokens of a chunk: how it lies in shared memory, and its product with
// their values.
#pragma once

#include "tiles.cuh"

namespace attune::cuda {

/// Stores one 16 x 16 block of P as weigh(row, column, product), zeros above the diagonal. The
/// products are sums over even steps and over odd ones, of two blocks of eight columns.
template <class T, class Shape, class Weigh>
__device__ __forceinline__ void store_weights(const Tile<Shape>& weights,
                                              const float (&products)[2][2][4], int row_block,
                                              int column_block, Weigh&& weigh) {
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
      const float weight = weigh(row, column + e, product);
      pair[e] = column + e <= row ? weight : 0.0F;
    }
    store_shared_4(weights.at(row, column * 2), pack<T>(pair[0], pair[1]));
  }
}

/// O^T += V^T P^T for the 16 tokens j of `step`; `values` is V^T of them.
template <class T, class Shape>
__device__ __forceinline__ void add_chunk(Outputs<Shape>& outputs, const std::uint32_t (&values)[4],
                                          const Tile<Shape>& weights, int step) {
#pragma unroll
  for (int n = 0; n < Shape::kChunk / 16; ++n) {
    if (n < step) continue;  // tokens before those
    std::uint32_t b[4];
    load_matrices(b, weights.across(16 * n, 16 * step));
    mma_m16n8k16<T>(outputs[2 * n], values, b[0], b[1]);
    mma_m16n8k16<T>(outputs[2 * n + 1], values, b[2], b[3]);
  }
}

}  // namespace attune::cuda
