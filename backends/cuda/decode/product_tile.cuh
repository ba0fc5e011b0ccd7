// A warp's part of a state in products on tensor cores: in shared memory, and what is done with it.
#pragma once

#include "cuda/decode/product_tokens.cuh"
#include "cuda/decode/step_tile.cuh"
#include "cuda/tiles/hinted_copy.cuh"

namespace attune::cuda::decode {

/// Rows of vectors, with lanes where the tensor cores want them: lane / 4 is the place along V,
/// lane % 4 the pair of rows out of eight. A warp's vectors are in panels of 128 bytes a row, each
/// row's swizzled: the lanes that read one at a time then fall into different banks.
template <class StateType, int kRowCount>
struct ProductTile : StepTile<StateType, StepLayout::kRowVectors> {
  using Base = StepTile<StateType, StepLayout::kRowVectors>;
  static constexpr int kWarpRows = kRowCount * Base::kRowStep;
  static constexpr int kPanelRow = 128;  // bytes
  static constexpr int kPanelBytes = kWarpRows * kPanelRow;
  static constexpr int kWarpBytes = Base::kVectors * kPanelBytes;
  static constexpr int kPanelColumns = kPanelRow / static_cast<int>(sizeof(StateType));
  static_assert(ProductShape::kTokens * ProductShape::kSumStride * sizeof(float) <= kWarpBytes);
};

/// Where a thread stands in its block's tile that is at `row` and `column` of its warp's part.
template <class Tile>
__device__ __forceinline__ StepLane product_lane(const ProductShape& shape, int row, int column) {
  static_assert(ProductShape::kMaxWarpsV == 2);
  const int warp = warp_index();
  const int warp_k = shape.warps_v == 2 ? warp / 2 : warp;
  return {warp_k, warp_k * Tile::kWarpRows + row,
          (warp - warp_k * shape.warps_v) * Tile::kWarpColumns + column};
}
/// The first row and column that a thread has in products.
template <class Tile>
__device__ __forceinline__ StepLane product_lane(const ProductShape& shape) {
  const int lane = lane_index();
  return product_lane<Tile>(shape, lane % 4 * 2, lane / 4 * Tile::kVector);
}

/// A warp's part of the tile in shared memory.
template <class Tile, class T>
__device__ __forceinline__ std::byte* warp_tile(const ProductScratch<T>& scratch) {
  return scratch.tile + warp_index() * Tile::kWarpBytes;
}

/// A thread's part of a head's states, at any slot, from its first row and column on.
struct ProductPart {
  std::int64_t offset;          // of its first element, from the slot's first one
  int rows_left, columns_left;  // from it on; 0 or less: none
};
template <class Tile>
__device__ __forceinline__ ProductPart product_part(const StepParams& p, const ProductBlock& at,
                                                    int row, int column) {
  return {.offset = at.head * p.state.head + (at.first_row + row) * p.state.k +
                    (at.first_column + column),
          .rows_left = at.rows - row,
          .columns_left = at.columns - column};
}
__device__ __forceinline__ std::uint64_t policy_of(const ProductShape& shape) {
  return shape.evict_first ? policy_evict_first() : policy_evict_normal();
}

/// A warp's part of a state on its way to shared memory, four whole lines at a time: what of it is known
/// before the slot is.
template <class Tile>
struct StateCopy {
  using State = typename Tile::State;
  static constexpr int kLanes = Tile::kPanelRow / 16;
  static constexpr int kRows = kWarpSize / kLanes;  // of a state, that are asked for at once
  ProductPart part;
  const State* from;  // in the first slot
  std::uint32_t to[2];

  template <class T>
  __device__ __forceinline__ StateCopy(const StepParams& p, const ProductShape& shape,
                                       const ProductScratch<T>& scratch, const ProductBlock& at) {
    const int lane = lane_index();
    const int row = lane / kLanes, chunk = lane % kLanes;
    const StepLane first = product_lane<Tile>(shape, row, chunk * Tile::kVector);
    part = product_part<Tile>(p, at, first.row, first.column);
    from = static_cast<const State*>(p.state.data) + part.offset;
    // Rows are kRows apart, so that every other one is swizzled alike.
    static_assert(kRows == 4);
    const std::uint32_t panel = shared_address(warp_tile<Tile>(scratch));
    to[0] = panel + swizzled(row, chunk * 16);
    to[1] = panel + swizzled(row + kRows, chunk * 16);
  }
  /// Asks for it. Rows and columns that do not exist become zero.
  __device__ __forceinline__ void start(const StepParams& p, std::int64_t slot,
                                        std::uint64_t policy) const {
    const State* row = from + slot * p.state.sequence;
#pragma unroll
    for (int r = 0; r < Tile::kWarpRows; r += kRows, row += kRows * p.state.k) {
      constexpr int kBoth = 2 * kRows;
#pragma unroll
      for (int n = 0; n < Tile::kVectors; ++n) {
        copy_async_16(
            to[r % kBoth / kRows] + n * Tile::kPanelBytes + r / kBoth * kBoth * Tile::kPanelRow,
            row + n * Tile::kPanelColumns,
            r < part.rows_left && n * Tile::kPanelColumns < part.columns_left, policy);
      }
    }
    copy_async_commit();
  }
};

/// Asks the L2 cache for a warp's part of a state.
template <class Tile>
__device__ __forceinline__ void prefetch_state(const StepParams& p, const ProductShape& shape,
                                               const ProductBlock& at, std::int64_t slot) {
  const auto* const state =
      static_cast<const typename Tile::State*>(p.state.data) + slot * p.state.sequence;
  for (int line = lane_index(); line < Tile::kWarpRows * Tile::kVectors; line += kWarpSize) {
    const StepLane lane = product_lane<Tile>(shape, line / Tile::kVectors,
                                             line % Tile::kVectors * Tile::kPanelColumns);
    const ProductPart part = product_part<Tile>(p, at, lane.row, lane.column);
    if (part.rows_left > 0 && part.columns_left > 0) prefetch_line(state + part.offset);
  }
}

/// Two rows of a thread's, as they lie in memory.
template <class Tile>
struct RowPair {
  float4 upper[Tile::kVectors], lower[Tile::kVectors];
};
/// Of rows lane % 4 * 2 and the one behind it of the `eight` th eight.
template <class Tile>
__device__ __forceinline__ RowPair<Tile> load_row_pair(const std::byte* tile, int eight) {
  const auto lane = threadIdx.x % kWarpSize;
  const auto row = lane % 4 * 2, chunk = lane / 4 * 16;
  RowPair<Tile> rows;
#pragma unroll
  for (int n = 0; n < Tile::kVectors; ++n) {
    const std::byte* const panel = tile + n * Tile::kPanelBytes + eight * 8 * Tile::kPanelRow;
    rows.upper[n] = *reinterpret_cast<const float4*>(panel + swizzled(row, chunk));
    rows.lower[n] = *reinterpret_cast<const float4*>(panel + swizzled(row + 1, chunk));
  }
  return rows;
}

/// Columns 2 m and 2 m + 1 of a thread's part of a row.
template <class Tile>
__device__ __forceinline__ float2 pair_at(const float4 (&row)[Tile::kVectors], int m) {
  if constexpr (Tile::kVectors > 1) {
    const float4& vector = row[m / 2];
    return m % 2 == 0 ? float2{vector.x, vector.y} : float2{vector.z, vector.w};
  } else {
    const float words[4] = {row[0].x, row[0].y, row[0].z, row[0].w};
    return unpack<typename Tile::State>(__float_as_uint(words[m]));
  }
}
template <class Tile>
__device__ __forceinline__ void set_pair(float4 (&row)[Tile::kVectors], int m, float low,
                                         float high) {
  if constexpr (Tile::kVectors > 1) {
    float4& vector = row[m / 2];
    (m % 2 == 0 ? vector.x : vector.z) = low;
    (m % 2 == 0 ? vector.y : vector.w) = high;
  } else {
    const float word = __uint_as_float(pack<typename Tile::State>(low, high));
    (m == 0 ? row[0].x : m == 1 ? row[0].y : m == 2 ? row[0].z : row[0].w) = word;
  }
}

/// Stores two rows of a thread's, the first of which is `row` rows behind its first of all.
template <class Tile>
__device__ __forceinline__ void store_row_pair(typename Tile::State* to, std::int64_t row_stride,
                                               const ProductPart& part, int row,
                                               const RowPair<Tile>& rows, std::uint64_t policy) {
#pragma unroll
  for (int n = 0; n < Tile::kVectors; ++n) {
    const int column = n * Tile::kPanelColumns;
    if (column >= part.columns_left) continue;
    if (row < part.rows_left) store_vector(to + column, rows.upper[n], policy);
    if (row + 1 < part.rows_left) store_vector(to + row_stride + column, rows.lower[n], policy);
  }
}

}  // namespace attune::cuda::decode
