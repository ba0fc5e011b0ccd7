// Matrices [K, V] of the op as the accumulators of a block: the states and gradients that a walk
// starts from and ends with.
#pragma once

#include "cuda/chunks/token_tile.cuh"

namespace attune::cuda {

/// Where a [K, V] matrix of the op lies, seen as a walk's accumulator: its rows, then its columns.
template <class Element>
struct StateMatrix {
  Element* data = nullptr;
  std::int64_t row = 0;  // strides
  std::int64_t column = 0;
  int rows = 0;
  int columns = 0;
};

/// Calls f(i, offset) for the elements i of a warpgroup's accumulator that are in the matrix. Offsets are
/// sums: a product for each is so much code that blocks wait for it.
template <int kD, class Element, class F>
__device__ __forceinline__ void for_each_element(const StateMatrix<Element>& matrix, int group,
                                                 F&& f) {
  const FragmentLane at;
  const int row = group * kPanelChannels + at.row();
  std::int64_t offset = row * matrix.row + at.column() * matrix.column;
#pragma unroll
  for (int i = 0; i < kD / 2; i += 4, offset += 8 * matrix.column) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool exists =
          row + j / 2 * 8 < matrix.rows && i * 2 + at.column() + j % 2 < matrix.columns;
      if (exists) f(i + j, offset + j / 2 * 8 * matrix.row + j % 2 * matrix.column);
    }
  }
}

template <int kD>
__device__ __forceinline__ void load_matrix(float (&d)[kD / 2],
                                            const StateMatrix<const float>& matrix, int group) {
#pragma unroll
  for (int i = 0; i < kD / 2; ++i) d[i] = 0.0F;
  if (matrix.data == nullptr) return;
  for_each_element<kD>(matrix, group,
                       [&](int i, std::int64_t offset) { d[i] = matrix.data[offset]; });
}
template <int kD>
__device__ __forceinline__ void store_matrix(const float (&d)[kD / 2],
                                             const StateMatrix<float>& matrix, int group) {
  if (matrix.data == nullptr) return;
  for_each_element<kD>(matrix, group,
                       [&](int i, std::int64_t offset) { matrix.data[offset] = d[i]; });
}

}  // namespace attune::cuda
