// The state, or its gradient, that a walk starts from and ends with, and the anchors between.
#pragma once

#include "cuda/chunk_wgmma/backward/tiles.cuh"

namespace attune::cuda::chunk_backward {

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
  const FragmentPlace at;
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

/// The walk's part of the matrix of a sequence and head, with key channels along rows, as the dq
/// walk has it.
template <class Element, class View>
__device__ __forceinline__ StateMatrix<Element> keys_by_values(const View& view,
                                                               const ChunkBackwardParams& p,
                                                               const Walk& walk) {
  if (view.data == nullptr) return {};
  Element* const first = view.data + walk.sequence * view.sequence + walk.head * view.head +
                         walk.key_channel * view.k + walk.value_channel * view.v;
  return {first, view.k, view.v, p.key_dim - walk.key_channel, p.value_dim - walk.value_channel};
}
/// With value channels along rows, as the dk, dv walk has it.
template <class Element, class View>
__device__ __forceinline__ StateMatrix<Element> values_by_keys(const View& view,
                                                               const ChunkBackwardParams& p,
                                                               const Walk& walk) {
  const StateMatrix<Element> matrix = keys_by_values<Element>(view, p, walk);
  return {matrix.data, matrix.column, matrix.row, matrix.columns, matrix.rows};
}

/// What segment `index` of all adds, as its warpgroup's threads hold it: a word of four elements
/// after the other, each by all threads.
template <int kD>
__device__ __forceinline__ float4* segment_words(const ChunkBackwardParams& p, Direction direction,
                                                 std::int64_t index, int group) {
  constexpr int kWords = kD / 8 * kWarpgroupSize;
  const std::int64_t at = static_cast<int>(direction) * p.walks + index;
  return reinterpret_cast<float4*>(p.segment_sums) + (at * (kD / kPanelChannels) + group) * kWords +
         threadIdx.x % kWarpgroupSize;
}

/// Takes x through segment `index`.
template <int kD>
__device__ __forceinline__ void pass_segment(float (&x)[kD / 2], const ChunkBackwardParams& p,
                                             Direction direction, std::int64_t index, int group) {
  const float4* const from = segment_words<kD>(p, direction, index, group);
  const float decay = p.segment_decays[static_cast<int>(direction) * p.walks + index];
#pragma unroll
  for (int i = 0; i < kD / 8; ++i) {
    const float4 added = from[i * kWarpgroupSize];
    x[4 * i] = fmaf(decay, x[4 * i], added.x);
    x[4 * i + 1] = fmaf(decay, x[4 * i + 1], added.y);
    x[4 * i + 2] = fmaf(decay, x[4 * i + 2], added.z);
    x[4 * i + 3] = fmaf(decay, x[4 * i + 3], added.w);
  }
}

/// S before the walk: that of the sequence, taken through the segments before.
template <int kD>
__device__ __forceinline__ void load_state_before(float (&state)[kD / 2],
                                                  const ChunkBackwardParams& p, const Walk& walk,
                                                  int group) {
  load_matrix<kD>(state, keys_by_values<const float>(p.initial_state, p, walk), group);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) - walk.segment;
  for (int i = 0; i < walk.segment; ++i) {
    pass_segment<kD>(state, p, Direction::kWithTime, first + i, group);
  }
}
/// D^T after the walk: that of the sequence, taken back through the segments after.
template <int kD>
__device__ __forceinline__ void load_gradient_after(float (&d)[kD / 2],
                                                    const ChunkBackwardParams& p, const Walk& walk,
                                                    int group) {
  load_matrix<kD>(d, values_by_keys<const float>(p.dfinal_state, p, walk), group);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) - walk.segment;
  for (int i = p.segments - 1; i > walk.segment; --i) {
    pass_segment<kD>(d, p, Direction::kAgainstTime, first + i, group);
  }
}

/// An anchor: the state before a chunk, rounded, as 8 x 8 blocks (value channels by key channels),
/// whose rows' pairs are spread over lanes as in an accumulator. A 16-byte word of lane l holds its
/// pairs of a 2 x 2 group of blocks, so both walks move whole words: [V / 16][K / 16][lane].
template <class T, int kD>
__device__ __forceinline__ uint4* anchor_words(const ChunkBackwardParams& p, const Walk& walk,
                                               int n) {
  const std::int64_t anchor = walk.owner * p.slots + walk.anchor_slot(n);
  return reinterpret_cast<uint4*>(static_cast<T*>(p.anchors) + anchor * kD * kD);
}

}  // namespace attune::cuda::chunk_backward
