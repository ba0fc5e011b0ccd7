// A warp's part of a state in products on tensor cores: in shared memory, and what is done with it.
#pragma once

#include "cuda/decode/product_tokens.cuh"
#include "cuda/decode/step_tile.cuh"
#include "cuda/tiles/hinted_copy.cuh"

namespace attune::cuda::decode {

/// Rows of vectors, with lanes where the tensor cores want them: lane / 4 is the place along V,
/// lane % 4 the pair of rows out of eight. A warp's vectors are in panels of 128 bytes a row, each
/// row's swizzled: the lanes that read one at a time then fall into different banks.
template <class StateType, int kRowCount, int kVectorCount>
struct ProductTile {
  using State = StateType;
  static constexpr int kVector = kVectorColumns<State>;
  static constexpr int kVectors = kVectorCount;  // of a thread, in one row
  static constexpr int kColumns = kVectors * kVector;
  static constexpr int kPanelRow = 128;  // bytes
  static constexpr int kPanelColumns = kPanelRow / static_cast<int>(sizeof(State));
  static constexpr int kWarpColumns = kVectors * kPanelColumns;
  static constexpr int kWarpRows = kRowCount * (kWarpSize / (kPanelColumns / kVector));
  static constexpr int kPanelBytes = kWarpRows * kPanelRow;
  static constexpr int kWarpBytes = kVectors * kPanelBytes;
  static constexpr int kResidentBlocks = kColumns > DecodeConfig::kStepColumns ? 3 : 4;
  static constexpr int kSumStride = ProductShape::sum_stride(kWarpColumns);
  static_assert(ProductShape::kTokens * kSumStride * sizeof(float) <= kWarpBytes);

  /// Of the thread's column c, counted from its first.
  static constexpr int column_offset(int c) { return c / kVector * kPanelColumns + c % kVector; }
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
  const float4& vector = row[2 * m / Tile::kVector];
  const float words[4] = {vector.x, vector.y, vector.z, vector.w};
  const int pair = m % (Tile::kVector / 2);
  if constexpr (sizeof(typename Tile::State) == sizeof(float)) {
    return {words[2 * pair], words[2 * pair + 1]};
  } else {
    return unpack<typename Tile::State>(__float_as_uint(words[pair]));
  }
}
template <class Tile>
__device__ __forceinline__ void set_pair(float4 (&row)[Tile::kVectors], int m, float low,
                                         float high) {
  float4& vector = row[2 * m / Tile::kVector];
  const int pair = m % (Tile::kVector / 2);
  if constexpr (sizeof(typename Tile::State) == sizeof(float)) {
    (pair == 0 ? vector.x : vector.z) = low;
    (pair == 0 ? vector.y : vector.w) = high;
  } else {
    const float word = __uint_as_float(pack<typename Tile::State>(low, high));
    (pair == 0 ? vector.x : pair == 1 ? vector.y : pair == 2 ? vector.z : vector.w) = word;
  }
}

/// Where the first vector is that a thread stores of eight rows: that of its first row, but for half of
/// the lanes where a row is two lines, which store the second line of others' rows.
template <class Tile>
__device__ __forceinline__ StepLane store_lane(const ProductShape& shape) {
  const int lane = lane_index();
  const int column = lane / 4 * Tile::kVector;
  if constexpr (Tile::kVectors == 1) return product_lane<Tile>(shape, lane % 4 * 2, column);
  return product_lane<Tile>(shape, lane % 2 * 2, column + lane / 2 % 2 * Tile::kPanelColumns);
}
/// A row's two lines of four rows: lanes two apart swap vectors, so that what a warp stores at a time is
/// two rows as a whole, in place of one line of four. The memory takes those 5 % faster.
__device__ __forceinline__ void swap_lines(float4 (&row)[2]) {
  const bool is_second = lane_index() / 2 % 2 == 1;
  const float4 sent = is_second ? row[0] : row[1];
  constexpr int kApart = 2;
  const float4 received = {
      __shfl_xor_sync(kFullWarp, sent.x, kApart), __shfl_xor_sync(kFullWarp, sent.y, kApart),
      __shfl_xor_sync(kFullWarp, sent.z, kApart), __shfl_xor_sync(kFullWarp, sent.w, kApart)};
  (is_second ? row[0] : row[1]) = received;
}

/// Stores two rows of a thread's. `part` is of store_lane(), `row` rows of it are behind.
template <class Tile>
__device__ __forceinline__ void store_row_pair(typename Tile::State* to, std::int64_t row_stride,
                                               const ProductPart& part, int row, RowPair<Tile> rows,
                                               std::uint64_t policy) {
  if constexpr (Tile::kVectors == 2) {
    swap_lines(rows.upper);
    swap_lines(rows.lower);
  }
  if (part.columns_left <= 0) return;
#pragma unroll
  for (int n = 0; n < Tile::kVectors; ++n, row += 4, to += 4 * row_stride) {
    if (row < part.rows_left) store_vector(to, rows.upper[n], policy);
    if (row + 1 < part.rows_left) store_vector(to + row_stride, rows.lower[n], policy);
  }
}

}  // namespace attune::cuda::decode
