// Products of matrices that all lie in panels (cpu/simd/vector/panels.inl.hpp), the result too:
//
//   Left::kRows      C[r, c] = start + sum_d P[r, d] M[d, c]
//   Left::kColumns   C[r, c] = start + sum_d P[d, r] M[d, c]
//
// P is broadcast, M and C are read by vectors. A state in panels is both: do and v read it by
// vectors, and its transpose is read by broadcasting it, so one copy serves dk and dv. And rows of
// a panel are 64 bytes apart whatever K is, where those of a matrix with K = 128 fall into an
// eighth of the L1 cache's sets.
//
//   start   Start::kZero            0
//           Start::kAdd             C
//           Start::kScaleRows       row_scale[r] C
//           Start::kScaleColumns    column_scale[c] C
//           Start::kScaleBoth       row_scale[r] column_scale[c] C
#pragma once

#include "cpu/simd/vector/prefetch.inl.hpp"
#include "cpu/simd/vector/product.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward {

enum class Left { kRows, kColumns };

struct PanelProduct {
  Panels left;            // P
  Panels right;           // M
  Panels target;          // C
  std::int64_t rows = 0;  // of C, a multiple of kPanelWidth as the next two
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  // P[r, d] is zero where d > r and P is left of the product, where d < r and its transpose is.
  bool triangular = false;
  const float* row_scale = nullptr;
  const float* column_scale = nullptr;
};

// Vectors of a tile lie in one panel, or in neighbouring ones where a panel is one vector.
inline constexpr bool kPanelIsVector = kPanelWidth == kLanes;
inline constexpr int kWideTileVectors = 2;

// A tile of one vector needs more rows than kTileRows to hide the latency of its sums.
template <int kVectors>
inline constexpr int kPanelTileRows = kVectors == 1 ? 2 * kTileRows : kTileRows;

constexpr std::int64_t vector_step(std::int64_t panel_size) {
  return kPanelIsVector ? panel_size : kLanes;
}

template <int kRows, int kVectors>
using PanelTile = F32[kRows][kVectors];

// Adds what C starts with to the sums: once, at the end. Sums that began with it would round each
// of their steps to its precision, and a state is larger than what a chunk adds to it.
//
// Factors stay in registers: the compiler cannot know that stores to C leave them as they are.
template <Start kStart, int kRows, int kVectors>
[[gnu::always_inline]] inline void finish_panel_tile(const PanelProduct& p, std::int64_t row,
                                                     std::int64_t column,
                                                     const F32 (&column_scale)[kVectors],
                                                     PanelTile<kRows, kVectors>& tile) {
  float* const target = p.target.at(row, column);
  const std::int64_t step = vector_step(p.target.size);
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    F32 row_scale{};
    if constexpr (kStart == Start::kScaleRows || kStart == Start::kScaleBoth) {
      row_scale = in_register(broadcast(p.row_scale[row + m]));
    }
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      float* const at = target + m * kPanelWidth + j * step;
      F32 sum = tile[m][j];
      if constexpr (kStart == Start::kAdd) sum += load(at);
      if constexpr (kStart == Start::kScaleRows) sum = fma(load(at), row_scale, sum);
      if constexpr (kStart == Start::kScaleColumns) sum = fma(load(at), column_scale[j], sum);
      if constexpr (kStart == Start::kScaleBoth) {
        sum = fma(load(at) * row_scale, column_scale[j], sum);
      }
      store(at, sum);
    }
  }
}

// `depth` steps along P, within a panel where its rows are those of the product.
template <Left kLeft, int kRows, int kVectors>
[[gnu::always_inline]] inline void add_panel_products(const float* left, const float*& right,
                                                      std::int64_t right_step, std::int64_t depth,
                                                      PanelTile<kRows, kVectors>& tile) {
  constexpr std::int64_t kRowStep = kLeft == Left::kRows ? kPanelWidth : 1;
  constexpr std::int64_t kDepthStep = kLeft == Left::kRows ? 1 : kPanelWidth;
  for (const float* const end = left + depth * kDepthStep; left != end; left += kDepthStep) {
    F32 row[kVectors];
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) row[j] = load(right + j * right_step);
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) {
      F32 x = broadcast(left[m * kRowStep]);
      if constexpr (kVectors > 1) x = in_register(x);
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) tile[m][j] = fma(x, row[j], tile[m][j]);
    }
    right += kPanelWidth;
  }
}

// The tile behind the one at hand. Tiles of an update take less time than the lines of the next one
// take to come from L2, and the hardware does not ask for lines to be written early enough.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void fetch_tile(const float* tile, std::int64_t step) {
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) __builtin_prefetch(tile + m * kPanelWidth + j * step);
  }
}

template <Left kLeft, Start kStart, int kVectors>
[[gnu::always_inline]] inline void multiply_panel_tile(const PanelProduct& p, std::int64_t row,
                                                       std::int64_t column,
                                                       const F32 (&column_scale)[kVectors],
                                                       Prefetcher& prefetcher,
                                                       std::int64_t prefetch_lines) {
  constexpr int kRows = kPanelTileRows<kVectors>;
  PanelTile<kRows, kVectors> tile = {};
  const std::int64_t right_step = vector_step(p.right.size);
  if constexpr (kLeft == Left::kColumns) {
    fetch_tile<kRows, kVectors>(p.target.at(row + kRows, column), vector_step(p.target.size));
    prefetcher.fetch_lines<2>(prefetch_lines);
    const std::int64_t first = p.triangular ? row : 0;
    const float* right = p.right.at(first, column);
    add_panel_products<kLeft, kRows, kVectors>(p.left.at(first, row), right, right_step,
                                               p.depth - first, tile);
  } else {
    const std::int64_t end = p.triangular && row + kRows < p.depth ? row + kRows : p.depth;
    const float* left = p.left.at(row, 0);
    const float* right = p.right.at(0, column);
    for (std::int64_t rest = end; rest > 0; rest -= kPanelWidth) {
      prefetcher.fetch_lines<2>(prefetch_lines);
      add_panel_products<kLeft, kRows, kVectors>(left, right, right_step,
                                                 rest < kPanelWidth ? rest : kPanelWidth, tile);
      left += p.left.size;
    }
  }
  finish_panel_tile<kStart, kRows, kVectors>(p, row, column, column_scale, tile);
}

// Columns [column, column + kVectors * kLanes) of C. Not inlined, and with little else in it: GCC
// spills the tile otherwise.
template <Left kLeft, Start kStart, int kVectors>
[[gnu::noinline]] void multiply_panel_columns(const PanelProduct& product, std::int64_t column,
                                              Prefetcher& prefetcher, std::int64_t prefetch_lines) {
  const PanelProduct p = product;
  F32 column_scale[kVectors] = {};
  if constexpr (kStart == Start::kScaleColumns || kStart == Start::kScaleBoth) {
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      column_scale[j] = load(p.column_scale + column + j * kLanes);
    }
  }
  for (std::int64_t row = 0; row < p.rows; row += kPanelTileRows<kVectors>) {
    multiply_panel_tile<kLeft, kStart, kVectors>(p, row, column, column_scale, prefetcher,
                                                 prefetch_lines);
  }
}

// Fetches `prefetch_lines` before every panel of the depth, or before every tile of a transpose.
template <Left kLeft, Start kStart>
void multiply_panels(const PanelProduct& p, Prefetcher& prefetcher, std::int64_t prefetch_lines) {
  constexpr std::int64_t kWidth = kWideTileVectors * kLanes;
  std::int64_t column = 0;
  for (; column + kWidth <= p.columns; column += kWidth) {
    multiply_panel_columns<kLeft, kStart, kWideTileVectors>(p, column, prefetcher, prefetch_lines);
  }
  if constexpr (kPanelIsVector) {
    if (column < p.columns) {
      multiply_panel_columns<kLeft, kStart, 1>(p, column, prefetcher, prefetch_lines);
    }
  }
}

template <Left kLeft, Start kStart>
void multiply_panels(const PanelProduct& p) {
  Prefetcher none(0);
  multiply_panels<kLeft, kStart>(p, none, 0);
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward
