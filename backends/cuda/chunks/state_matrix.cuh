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

/// Calls f(i, row, column) for the elements i of a warpgroup's accumulator that are in the matrix.
template <int kD, class Element, class F>
__device__ __forceinline__ void for_each_element(const StateMatrix<Element>& matrix, int group,
                                                 F&& f) {
  const FragmentLane at;
#pragma unroll
  for (int i = 0; i < kD / 2; ++i) {
    const int row = group * kPanelChannels + at.row() + (i % 4 / 2) * 8;
    const int column = i / 4 * 8 + at.column() + i % 2;
    if (row < matrix.rows && column < matrix.columns) {
      f(i, row * matrix.row + column * matrix.column);
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
