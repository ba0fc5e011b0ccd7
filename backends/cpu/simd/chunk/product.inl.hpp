// Products of packed operands (panels.inl.hpp): where the chunked kernels spend their time.
//
//   ResultRows::kTokens     C[t, j] = start + sum_{i < depth} P[t, i] M[i, j]    P's rows times M
//   ResultRows::kChannels   C[i, j] = start + sum_{t < depth} P[t, i] M[t, j]    P's transpose
//   times M
//
// P lies in panels and is broadcast, M and C are matrices of whole vectors. A tile of C,
// kTileRows x kTileVectors, is summed up in registers, in the order of the depth; so an element of
// C does not depend on how wide the matrices are or where a tile begins.
//
//   start   Start::kZero            0
//           Start::kAdd             C
//           Start::kScaleRows       row_scale[row] C
//           Start::kScaleColumns    column_scale[j] C
//           Start::kScaleBoth       row_scale[row] column_scale[j] C
//
// A strip is kTileRows rows of C. Functions for strips are not inlined, and callers fetch rows that
// are needed later between two of them: with anything else in the same function, GCC spills the
// tile. A call costs some ten cycles, so one for a short depth should cover many columns.
#pragma once

#include "panels.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

// The accumulators hide the latency of one another (eight vectors at least) and leave registers for
// a row of M and a broadcast. kTileRows divides kPanelWidth and every chunk.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kTileRows = 8;  // of 32 registers
inline constexpr int kTileVectors = 2;
#elif defined(__AVX2__)
inline constexpr int kTileRows = 4;  // of 16 registers
inline constexpr int kTileVectors = 3;
#else
inline constexpr int kTileRows = 4;  // of 16 registers, and products need one
inline constexpr int kTileVectors = 2;
#endif

enum class ResultRows { kTokens, kChannels };
enum class Start { kZero, kAdd, kScaleRows, kScaleColumns, kScaleBoth };

struct StripProduct {
  const float* panels = nullptr;  // P at the strip's first row and the depth's first element
  std::int64_t panel_size = 0;    // from one panel to the next; kTokens only
  const float* matrix = nullptr;  // M at the first column, a row every `matrix_step`
  std::int64_t matrix_step = 0;
  std::int64_t depth = 0;
  float* target = nullptr;  // C at the strip's first row and the first column
  std::int64_t target_step = 0;
  std::int64_t columns = 0;             // a whole number of vectors
  const float* row_scale = nullptr;     // at the strip's first row
  const float* column_scale = nullptr;  // at the first column
};

template <int kVectors>
using Tile = F32[kTileRows][kVectors];

// Rounded after each factor in every instance, or the compiler contracts some of them into the
// first product and some not, and results would depend on the width of the tile.
template <Start kStart, int kVectors>
[[gnu::always_inline]] inline void start_tile(const StripProduct& p, std::int64_t column,
                                              Tile<kVectors>& tile) {
  const float* const target = p.target + column;
#pragma GCC unroll 8
  for (int m = 0; m < kTileRows; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      tile[m][j] = F32{};
      if constexpr (kStart != Start::kZero)
        tile[m][j] = load(target + m * p.target_step + j * kLanes);
      if constexpr (kStart == Start::kScaleRows || kStart == Start::kScaleBoth) {
        tile[m][j] = in_register(tile[m][j] * broadcast(p.row_scale[m]));
      }
      if constexpr (kStart == Start::kScaleColumns || kStart == Start::kScaleBoth) {
        tile[m][j] = in_register(tile[m][j] * load(p.column_scale + column + j * kLanes));
      }
    }
  }
}

// `depth` steps along P, within a panel when rows are tokens.
template <ResultRows kRows, int kVectors>
[[gnu::always_inline]] inline void add_products(const float* panels, const float*& matrix,
                                                std::int64_t matrix_step, std::int64_t depth,
                                                Tile<kVectors>& tile) {
  constexpr std::int64_t kRowStep = kRows == ResultRows::kTokens ? kPanelWidth : 1;
  constexpr std::int64_t kDepthStep = kRows == ResultRows::kTokens ? 1 : kPanelWidth;
  for (const float* const end = panels + depth * kDepthStep; panels != end; panels += kDepthStep) {
    F32 row[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) row[j] = load(matrix + j * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < kTileRows; ++m) {
      const F32 x = in_register(broadcast(panels[m * kRowStep]));
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) tile[m][j] = fma(x, row[j], tile[m][j]);
    }
    matrix += matrix_step;
  }
}

template <ResultRows kRows, Start kStart, int kVectors>
[[gnu::always_inline]] inline void multiply_tile(const StripProduct& p, std::int64_t column) {
  Tile<kVectors> tile;
  start_tile<kStart, kVectors>(p, column, tile);
  const float* matrix = p.matrix + column;
  if constexpr (kRows == ResultRows::kChannels) {
    add_products<kRows, kVectors>(p.panels, matrix, p.matrix_step, p.depth, tile);
  } else {
    const float* panel = p.panels;
    for (std::int64_t left = p.depth; left > 0; left -= kPanelWidth) {
      add_products<kRows, kVectors>(panel, matrix, p.matrix_step,
                                    left < kPanelWidth ? left : kPanelWidth, tile);
      panel += p.panel_size;
    }
  }
  float* const target = p.target + column;
#pragma GCC unroll 8
  for (int m = 0; m < kTileRows; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) store(target + m * p.target_step + j * kLanes, tile[m][j]);
  }
}

// One strip of C.
template <ResultRows kRows, Start kStart>
[[gnu::noinline]] void multiply_strip(const StripProduct& product) {
  const StripProduct p = product;
  std::int64_t column = 0;
  for (; p.columns - column >= kTileVectors * kLanes; column += kTileVectors * kLanes) {
    multiply_tile<kRows, kStart, kTileVectors>(p, column);
  }
  if constexpr (kTileVectors > 2) {
    if (p.columns - column >= 2 * kLanes) {
      multiply_tile<kRows, kStart, 2>(p, column);
      column += 2 * kLanes;
    }
  }
  if (column < p.columns) multiply_tile<kRows, kStart, 1>(p, column);
}

// C[t, :] = start + sum_i P[t, i] M[i, :] for the tokens of a chunk.
//
// Token t takes part in `depth` products; a causal one only in those up to `causal_from` + t, so
// that strips above the diagonal of a triangle that begins there are left out (within a strip, P
// has zeros there). `between` is called after each strip of a few columns.
struct TokensProduct {
  Panels panels;
  std::int64_t chunk = 0;
  std::int64_t depth = 0;
  bool causal = false;
  std::int64_t causal_from = 0;
  const float* matrix = nullptr;
  std::int64_t matrix_step = 0;
  float* target = nullptr;
  std::int64_t target_step = 0;
  std::int64_t columns = 0;
};

template <Start kStart, class Between>
void multiply_tokens(const TokensProduct& p, const Between& between) {
  // By columns first: those of M come from L2 for the first strip and from L1 for the others.
  constexpr std::int64_t kWidth = kTileVectors * kLanes;
  for (std::int64_t column = 0; column < p.columns; column += kWidth) {
    for (std::int64_t t = 0; t < p.chunk; t += kTileRows) {
      const std::int64_t causal_depth = p.causal_from + t + kTileRows;
      multiply_strip<ResultRows::kTokens, kStart>(
          {.panels = p.panels.at(t, 0),
           .panel_size = p.panels.size,
           .matrix = p.matrix + column,
           .matrix_step = p.matrix_step,
           .depth = p.causal && causal_depth < p.depth ? causal_depth : p.depth,
           .target = p.target + t * p.target_step + column,
           .target_step = p.target_step,
           .columns = p.columns - column < kWidth ? p.columns - column : kWidth});
      between();
    }
  }
}

// C[i, :] = start + sum_{t < depth} P[t, i] M[t, :] for `channels` channels, rounded up to whole
// strips, which C and row_scale have room for. `between` is called after each strip.
struct ChannelsProduct {
  Panels panels;
  std::int64_t channels = 0;
  std::int64_t depth = 0;  // tokens
  const float* matrix = nullptr;
  std::int64_t matrix_step = 0;
  float* target = nullptr;
  std::int64_t target_step = 0;
  std::int64_t columns = 0;
  const float* row_scale = nullptr;
  const float* column_scale = nullptr;
};

template <Start kStart, class Between>
void multiply_channels(const ChannelsProduct& p, const Between& between) {
  for (std::int64_t i = 0; i < p.channels; i += kTileRows) {
    multiply_strip<ResultRows::kChannels, kStart>(
        {.panels = p.panels.at(0, i),
         .matrix = p.matrix,
         .matrix_step = p.matrix_step,
         .depth = p.depth,
         .target = p.target + i * p.target_step,
         .target_step = p.target_step,
         .columns = p.columns,
         .row_scale = p.row_scale ? p.row_scale + i : nullptr,
         .column_scale = p.column_scale});
    between();
  }
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
