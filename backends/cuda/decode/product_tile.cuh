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
  /// As many threads as a block has at most, and blocks of a multiprocessor that registers are for.
  static constexpr int kMaxThreads =
      ProductShape::kRows / kWarpRows * ProductShape::kMaxWarpsV * DecodeConfig::kWarpThreads;
  static constexpr int resident_blocks(bool keeps_states) {
    const bool many = !keeps_states && sizeof(StateType) < sizeof(float) && kRowCount == 8;
    return (many ? 768 : 512) / kMaxThreads;
  }
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

/// Asks for a warp's part of a state, four whole lines at a time. Rows and columns that do not exist
/// become zero.
template <class T, class Tile>
__device__ __forceinline__ void copy_state(const StepParams& p, const ProductShape& shape,
                                           const ProductScratch<T>& scratch, const ProductBlock& at,
                                           std::int64_t slot) {
  using State = typename Tile::State;
  constexpr int kLanes = Tile::kPanelRow / 16;
  constexpr int kRows = kWarpSize / kLanes;
  const int lane = lane_index();
  const int row = lane / kLanes, chunk = lane % kLanes;
  const StepLane first = product_lane<Tile>(shape, row, chunk * Tile::kVector);
  const ProductPart part = product_part<Tile>(p, at, first.row, first.column);
  const auto* from =
      static_cast<const State*>(p.state.data) + slot * p.state.sequence + part.offset;
  const std::uint64_t policy = policy_of(shape);
  // Rows are kRows apart, so that every other one is swizzled alike.
  static_assert(kRows == 4);
  const std::uint32_t panel = shared_address(warp_tile<Tile>(scratch));
  const std::uint32_t to[2] = {panel + swizzled(row, chunk * 16),
                               panel + swizzled(row + kRows, chunk * 16)};
#pragma unroll
  for (int r = 0; r < Tile::kWarpRows; r += kRows, from += kRows * p.state.k) {
    constexpr int kBoth = 2 * kRows;
#pragma unroll
    for (int n = 0; n < Tile::kVectors; ++n) {
      copy_async_16(
          to[r % kBoth / kRows] + n * Tile::kPanelBytes + r / kBoth * kBoth * Tile::kPanelRow,
          from + n * Tile::kPanelColumns,
          r < part.rows_left && n * Tile::kPanelColumns < part.columns_left, policy);
    }
  }
  copy_async_commit();
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

/// A warp's operands of tokens: what those at places first + lane % 4, and the fourth behind it,
/// have of the thread's columns 2 m and 2 m + 1. exists(place): else it is zero.
template <class Tile>
struct TokenValues {
  float left[Tile::kColumns / 2][4];
};
template <class T, class Tile, class Exists>
__device__ __forceinline__ TokenValues<Tile> load_values(const ProductScratch<T>& scratch,
                                                         const StepLane& lane, int first,
                                                         const Exists& exists) {
  TokenValues<Tile> loaded;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int place = first + lane_index() % 4 + 4 * n;
    const bool is_there = exists(place);
    const T* const values = scratch.values + place * kTokenStride + lane.column;
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) {
      const auto* const from =
          reinterpret_cast<const std::uint32_t*>(values + Tile::column_offset(2 * m));
      const float2 pair = unpack<T>(is_there ? *from : 0);
      loaded.left[m][2 * n] = pair.x;
      loaded.left[m][2 * n + 1] = pair.y;
    }
  }
  return loaded;
}

/// The thread's element of a factor: a token's lanes and those of the fourth behind it are pairs.
__device__ __forceinline__ RightOperand<2> load_factor(const float* factors, int eight) {
  const int lane = lane_index();
  const float2 pair = *reinterpret_cast<const float2*>(factors + eight * kFactorStride + lane * 2);
  RightOperand<2> operand;
  operand.set(0, pair.x);
  operand.set(1, pair.y);
  return operand;
}

/// u += what tokens have of two columns, times `by`.
__device__ __forceinline__ void multiply_values(float (&u)[4], const float (&values)[4],
                                                const RightOperand<2>& by) {
  mma_m16n8k8(u, values, by.low[0], by.low[1]);
  mma_m16n8k8(u, values, by.high[0], by.high[1]);
}

/// o += what tokens read of two columns of two rows.
template <class Tile>
__device__ __forceinline__ void read_pairs(float (&o)[4], const float2& upper, const float2& lower,
                                           const RightOperand<2>& read) {
  const float state[4] = {upper.x, upper.y, lower.x, lower.y};
  mma_m16n8k8(o, state, read.low[0], read.low[1]);
  if constexpr (sizeof(typename Tile::State) == sizeof(float)) {
    float low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) low[i] = state[i] - truncate_tf32(state[i]);
    mma_m16n8k8(o, low, read.high[0], read.high[1]);
  }
  mma_m16n8k8(o, state, read.high[0], read.high[1]);
}

/// Reads, decays and writes two rows of a thread's: `read` and `write` are the operands of the
/// tokens, `values` what they have of its columns.
template <class Tile>
__device__ __forceinline__ void take_rows(RowPair<Tile>& rows, float (&o)[Tile::kColumns / 2][4],
                                          const TokenValues<Tile>& values,
                                          const RightOperand<2>& read, const RightOperand<2>& write,
                                          const float2& decay) {
#pragma unroll
  for (int m = 0; m < Tile::kColumns / 2; ++m) {
    const float2 upper = pair_at<Tile>(rows.upper, m), lower = pair_at<Tile>(rows.lower, m);
    read_pairs<Tile>(o[m], upper, lower, read);
    float u[4] = {};
    multiply_values(u, values.left[m], write);
    set_pair<Tile>(rows.upper, m, fmaf(upper.x, decay.x, u[0]), fmaf(upper.y, decay.x, u[2]));
    set_pair<Tile>(rows.lower, m, fmaf(lower.x, decay.y, u[1]), fmaf(lower.y, decay.y, u[3]));
  }
}

/// Takes a warp's part of a tile through take_rows() and stores it.
template <class T, class Tile>
__device__ __forceinline__ void run_products(const StepParams& p, const ProductShape& shape,
                                             const ProductScratch<T>& scratch, const StepLane& lane,
                                             const ProductBlock& at, const ProductRow& row,
                                             float (&o)[Tile::kColumns / 2][4]) {
  using State = typename Tile::State;
  ProductPart part = product_part<Tile>(p, at, lane.row, lane.column);
  if (row.stored == 0) part.rows_left = 0;
  State* to = static_cast<State*>(p.state.data) + row.slot * p.state.sequence + part.offset;
  const std::uint64_t policy = policy_of(shape);
  const std::byte* const tile = warp_tile<Tile>(scratch);
  const int first_eight = lane.warp_k * (Tile::kWarpRows / kFactorRows);
  const auto values =
      load_values<T, Tile>(scratch, lane, 0, [&](int place) { return place < row.stored; });
#pragma unroll 1
  for (int eight = 0; eight < Tile::kWarpRows / kFactorRows; ++eight) {
    RowPair<Tile> rows = load_row_pair<Tile>(tile, eight);
    const RightOperand<2> read = load_factor(scratch.reads, first_eight + eight);
    const RightOperand<2> write = load_factor(scratch.writes, first_eight + eight);
    const float2 decay =
        *reinterpret_cast<const float2*>(scratch.kept + lane.row + eight * kFactorRows);
    take_rows<Tile>(rows, o, values, read, write, decay);
    store_row_pair<Tile>(to, p.state.k, part, eight * kFactorRows, rows, policy);
    to += kFactorRows * p.state.k;
  }
}

/// Takes two rows of a thread's from token to token, in fp32, and keeps what they become.
/// keys: of the eight rows' lane / 4 th, by token; `first`: the thread's first of the two.
template <class T, class Tile>
__device__ __forceinline__ void keep_row_pair(const StepParams& p, const ProductScratch<T>& scratch,
                                              const ProductPart& part, int eight, int first,
                                              const TokenValues<Tile>& values,
                                              const PlaceDecays& decays, RowPair<Tile>& rows,
                                              std::uint64_t policy) {
  using State = typename Tile::State;
  const int c = lane_index() % 4;
  const int g = lane_index() / 4;
  float s[Tile::kColumns / 2][4];
#pragma unroll
  for (int m = 0; m < Tile::kColumns / 2; ++m) {
    const float2 upper = pair_at<Tile>(rows.upper, m), lower = pair_at<Tile>(rows.lower, m);
    s[m][0] = upper.x, s[m][1] = lower.x, s[m][2] = upper.y, s[m][3] = lower.y;
  }
  const T* const keys = scratch.keys + first / kFactorRows * kFactorRows + g;
  auto* const to = static_cast<State*>(p.state.data) + part.offset +
                   std::int64_t{eight * kFactorRows} * p.state.k;
#pragma unroll 1
  for (int t = 0; t < p.tokens; ++t) {
    const float key = to_float(keys[t * kTokenStride]);
    const float by[2] = {t == c ? key : 0, t == c + 4 ? key : 0};
    const float decay[2] = {decays(t, first), decays(t, first + 1)};
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) {
      float u[4] = {};
      mma_m16n8k8(u, values.left[m], by[0], by[1]);
#pragma unroll
      for (int e = 0; e < 4; ++e) s[m][e] = fmaf(s[m][e], decay[e % 2], u[e]);
      set_pair<Tile>(rows.upper, m, s[m][0], s[m][2]);
      set_pair<Tile>(rows.lower, m, s[m][1], s[m][3]);
    }
    const std::int64_t slot = scratch.slots[t];
    if (slot == kPaddingSlot) continue;
    store_row_pair<Tile>(to + slot * p.state.sequence, p.state.k, part, eight * kFactorRows, rows,
                         policy);
  }
}

/// Reads a warp's part of a tile, and keeps its states.
template <class T, class Tile>
__device__ __forceinline__ void keep_states(const StepParams& p, const ProductShape& shape,
                                            const ProductScratch<T>& scratch, const StepLane& lane,
                                            const ProductBlock& at,
                                            float (&o)[Tile::kColumns / 2][4]) {
  const ProductPart part = product_part<Tile>(p, at, lane.row, lane.column);
  const std::uint64_t policy = policy_of(shape);
  const std::byte* const tile = warp_tile<Tile>(scratch);
  const int first_eight = lane.warp_k * (Tile::kWarpRows / kFactorRows);
  const PlaceDecays decays = decays_of(p, scratch);
  const auto values =
      load_values<T, Tile>(scratch, lane, 0, [&](int place) { return place < p.tokens; });
#pragma unroll 1
  for (int eight = 0; eight < Tile::kWarpRows / kFactorRows; ++eight) {
    RowPair<Tile> rows = load_row_pair<Tile>(tile, eight);
    const RightOperand<2> read = load_factor(scratch.reads, first_eight + eight);
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) {
      read_pairs<Tile>(o[m], pair_at<Tile>(rows.upper, m), pair_at<Tile>(rows.lower, m), read);
    }
    keep_row_pair<T, Tile>(p, scratch, part, eight, lane.row + eight * kFactorRows, values, decays,
                           rows, policy);
  }
}

/// Adds what new tokens read of the tokens themselves.
template <class T, class Tile>
__device__ __forceinline__ void add_products_of_scores(const StepParams& p,
                                                       const ProductScratch<T>& scratch,
                                                       const StepLane& lane, const ProductRow& row,
                                                       float (&o)[Tile::kColumns / 2][4]) {
  const int g = lane_index() / 4;
  const int c = lane_index() % 4;
  for (int first = 0; first < p.committed_tokens + p.tokens; first += kProductTokens) {
    const auto values = load_values<T, Tile>(scratch, lane, first,
                                             [&](int place) { return is_taken(p, row, place); });
    RightOperand<2> score;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      score.set(e, scratch.scores[(first + c + 4 * e) * kProductTokens + g]);
    }
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) multiply_values(o[m], values.left[m], score);
  }
}

/// Where a warp's sums are: of a thread's first column.
template <class T>
__device__ __forceinline__ float* warp_sums(const ProductShape& shape,
                                            const ProductScratch<T>& scratch, int warp) {
  return reinterpret_cast<float*>(scratch.tile + shape.sums + warp * shape.warp_sums);
}

/// Puts a warp's sums where all warps' are added up, or adds them to those of the tiles before.
template <class T, class Tile>
__device__ __forceinline__ void put_product_sums(const ProductShape& shape,
                                                 const ProductScratch<T>& scratch, int tokens,
                                                 const float (&o)[Tile::kColumns / 2][4],
                                                 bool first_tile) {
  const int c = lane_index() % 4;
  float* const sums = warp_sums(shape, scratch, warp_index()) + lane_index() / 4 * Tile::kVector;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int t = 2 * c + e;
    if (t >= tokens) continue;
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) {
      auto& pair = *reinterpret_cast<float2*>(sums + t * ProductShape::kSumStride +
                                              Tile::column_offset(2 * m));
      const float2 before = first_tile ? float2{0, 0} : pair;
      pair = {before.x + o[m][e], before.y + o[m][2 + e]};
    }
  }
}

/// o of a tile's columns: the sums over its warps, or zeros of a padding row.
template <class T, class Tile>
__device__ __forceinline__ void write_product_output(const StepParams& p, const ProductShape& shape,
                                                     const ProductScratch<T>& scratch,
                                                     std::int64_t b, const BlockTile& tile,
                                                     bool is_padding) {
  const auto tokens_of = [&](unsigned threads) {  // that many threads have a column each
    const auto warps = static_cast<int>(threads / Tile::kWarpColumns);
    return shape.warps_v == 2 ? warps / 2 : warps;
  };
  const int first = tokens_of(threadIdx.x), step = tokens_of(blockDim.x);
  const int column = static_cast<int>(threadIdx.x) - first * shape.columns;
  if (tile.first_column + column >= p.values) return;
  const float* const sums =
      warp_sums(shape, scratch, column / Tile::kWarpColumns) + column % Tile::kWarpColumns;
  const int of_row = shape.warps_v * shape.warp_sums / static_cast<int>(sizeof(float));
  for (int t = first; t < p.tokens; t += step) {
    float sum = 0;
    for (int warp = 0; warp < shape.warps_k && !is_padding; ++warp) {
      sum += sums[warp * of_row + t * ProductShape::kSumStride];
    }
    store_output<T>(p, b, t, tile.head, tile.first_column + column, sum);
  }
}

}  // namespace attune::cuda::decode
