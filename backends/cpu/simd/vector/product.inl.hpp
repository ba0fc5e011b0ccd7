// Products of packed operands (panels.inl.hpp): where the chunked kernels spend their time.
//
//   ResultRows::kTokens     C[t, j] = start + sum_{i < depth} P[t, i] M[i, j]    P M
//   ResultRows::kChannels   C[i, j] = start + sum_{t < depth} P[t, i] M[t, j]    P' M
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
// With ResultRows::kTokens the sum may have a second part, from `depth` on, and the first be scaled
// by `row_factor` before that is added: C[t, j] = row_factor[t] (start + sum_1) + sum_2.
//
// A strip is kTileRows rows of C. Functions for strips are not inlined: with much else in the same
// function, GCC spills the tile. A call costs some ten cycles, so one for a short depth should
// cover many columns.
#pragma once

#include "panels.inl.hpp"
#include "prefetch.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE {

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

// How elements are multiplied. An element of P, broadcast, times a vector of M, added to C's.
struct SingleArithmetic {
  static constexpr std::int64_t kTerms = 1;  // of the depth in an element
  [[gnu::always_inline]] static F32 broadcast_from(const float* element) {
    return in_register(broadcast(*element));
  }
  [[gnu::always_inline]] static F32 multiply_add(F32 x, F32 row, F32 sum) {
    return fma(x, row, sum);
  }
};

#if defined(__AVX512BF16__)
// Elements are pairs of bf16, in the bits of a float: two terms of the depth. Sums are fp32. The
// instruction takes denormals as zero.
struct PairArithmetic {
  static constexpr std::int64_t kTerms = 2;
  [[gnu::always_inline]] static F32 broadcast_from(const float* element) {
    return in_register((F32)_mm512_set1_ps(*element));
  }
  [[gnu::always_inline]] static F32 multiply_add(F32 x, F32 row, F32 sum) {
    return (F32)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)row);
  }
};

// Two rows as one of pairs: the first in the lower halves.
[[gnu::always_inline]] inline F32 pair_rows(F32 first, F32 second) {
  const auto halves = (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
  typedef std::uint16_t Halves __attribute__((vector_size(64)));
  const auto from = (Halves)halves;
  return (F32)__builtin_shufflevector(from, from, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22,
                                      7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
                                      15, 31);
}

using Arithmetic = PairArithmetic;
#else
using Arithmetic = SingleArithmetic;
#endif

enum class ResultRows { kTokens, kChannels };
enum class Start { kZero, kAdd, kScaleRows, kScaleColumns, kScaleBoth };

struct StripProduct {
  const float* panels = nullptr;  // P at the strip's first row and the depth's first element
  std::int64_t panel_size = 0;    // from one panel to the next; kTokens only
  const float* matrix = nullptr;  // M at the first column, a row every `matrix_step`
  std::int64_t matrix_step = 0;
  std::int64_t depth = 0;             // a whole number of panels when there is a second part
  std::int64_t more_depth = 0;        // of the second part; kTokens only
  const float* row_factor = nullptr;  // at the strip's first row; null for 1
  float* target = nullptr;            // C at the strip's first row and the first column
  std::int64_t target_step = 0;
  std::int64_t columns = 0;             // a whole number of vectors
  const float* row_scale = nullptr;     // at the strip's first row
  const float* column_scale = nullptr;  // at the first column
  LineFetcher* fetcher = nullptr;       // lines to fetch meanwhile
  float* pairs_target = nullptr;        // C once more, as pairs of rows, for PairArithmetic
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
      const F32 x = Arithmetic::broadcast_from(panels + m * kRowStep);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j)
        tile[m][j] = Arithmetic::multiply_add(x, row[j], tile[m][j]);
    }
    matrix += matrix_step;
  }
}

// What a strip fetches at each step: a panel of the depth, or a tile.
struct StripFetcher {
  const char* const* next = nullptr;
  const char* const* end = nullptr;
  std::int64_t lines = 0;

  [[gnu::always_inline]] void step() {
    const char* const* const until = end - next < lines ? end : next + lines;
    next = fetch_lines(next, until);
  }
};

// Depth by panels. `panel` and `matrix` move on.
template <int kVectors>
[[gnu::always_inline]] inline void add_panels(const StripProduct& p, std::int64_t depth,
                                              const float*& panel, const float*& matrix,
                                              StripFetcher& fetcher, Tile<kVectors>& tile) {
#pragma GCC unroll 1
  for (std::int64_t left = depth; left > 0; left -= kPanelWidth) {
    fetcher.step();
    add_products<ResultRows::kTokens, kVectors>(panel, matrix, p.matrix_step,
                                                left < kPanelWidth ? left : kPanelWidth, tile);
    panel += p.panel_size;
  }
}

template <ResultRows kRows, Start kStart, int kVectors>
[[gnu::always_inline]] inline void multiply_tile(const StripProduct& p, std::int64_t column,
                                                 StripFetcher& fetcher) {
  Tile<kVectors> tile;
  start_tile<kStart, kVectors>(p, column, tile);
  const float* matrix = p.matrix + column;
  if constexpr (kRows == ResultRows::kChannels) {
    fetcher.step();
    add_products<kRows, kVectors>(p.panels, matrix, p.matrix_step, p.depth, tile);
  } else {
    const float* panel = p.panels;
    add_panels<kVectors>(p, p.depth, panel, matrix, fetcher, tile);
    if (p.row_factor) {
#pragma GCC unroll 8
      for (int m = 0; m < kTileRows; ++m) {
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) {
          tile[m][j] = in_register(tile[m][j] * broadcast(p.row_factor[m]));
        }
      }
    }
    add_panels<kVectors>(p, p.more_depth, panel, matrix, fetcher, tile);
  }
  float* const target = p.target + column;
#pragma GCC unroll 8
  for (int m = 0; m < kTileRows; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) store(target + m * p.target_step + j * kLanes, tile[m][j]);
  }
#if defined(__AVX512BF16__)
  if constexpr (kRows == ResultRows::kChannels) {
    float* const pairs = p.pairs_target + column;
#pragma GCC unroll 8
    for (int m = 0; m < kTileRows; m += 2) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        store(pairs + m / 2 * p.target_step + j * kLanes, pair_rows(tile[m][j], tile[m + 1][j]));
      }
    }
  }
#endif
}

// One strip of C.
template <ResultRows kRows, Start kStart>
[[gnu::noinline]] void multiply_strip(const StripProduct& product) {
  const StripProduct p = product;
  StripFetcher fetcher;
  if (p.fetcher) fetcher = {p.fetcher->next, p.fetcher->end, p.fetcher->lines_per_step};
  std::int64_t column = 0;
  for (; p.columns - column >= kTileVectors * kLanes; column += kTileVectors * kLanes) {
    multiply_tile<kRows, kStart, kTileVectors>(p, column, fetcher);
  }
  if constexpr (kTileVectors > 2) {
    if (p.columns - column >= 2 * kLanes) {
      multiply_tile<kRows, kStart, 2>(p, column, fetcher);
      column += 2 * kLanes;
    }
  }
  if (column < p.columns) multiply_tile<kRows, kStart, 1>(p, column, fetcher);
  if (p.fetcher) p.fetcher->next = fetcher.next;
}

// Tiles in a row of C.
constexpr std::int64_t tiles_of(std::int64_t columns) {
  constexpr std::int64_t kWidth = kTileVectors * kLanes;
  return (columns + kWidth - 1) / kWidth;
}

// C[t, :] = row_factor[t] (start + sum_i P[t, i] M[i, :]) + sum_s P[t, depth + s] M[depth + s, :]
// for the tokens of a chunk, where s goes up to t: the second sum is that of a causal triangle.
// Strips above its diagonal are left out; within a strip, P has zeros there.
struct TokensProduct {
  Panels panels;
  std::int64_t chunk = 0;
  std::int64_t depth = 0;             // whole panels
  bool causal = false;                // whether there is a second sum
  const float* row_factor = nullptr;  // null for 1
  const float* matrix = nullptr;
  std::int64_t matrix_step = 0;
  float* target = nullptr;
  std::int64_t target_step = 0;
  std::int64_t columns = 0;
  LineFetcher* fetcher = nullptr;

  std::int64_t fetch_steps() const {
    const std::int64_t panels_deep =
        (depth + (causal ? chunk / Arithmetic::kTerms : 0) + kPanelWidth - 1) / kPanelWidth;
    return chunk / kTileRows * tiles_of(columns) * panels_deep;
  }
};

template <Start kStart>
void multiply_tokens(const TokensProduct& p) {
  // By columns first: those of M come from L2 for the first strip and from L1 for the others.
  constexpr std::int64_t kWidth = kTileVectors * kLanes;
  for (std::int64_t column = 0; column < p.columns; column += kWidth) {
    for (std::int64_t t = 0; t < p.chunk; t += kTileRows) {
      multiply_strip<ResultRows::kTokens, kStart>(
          {.panels = p.panels.at(t, 0),
           .panel_size = p.panels.size,
           .matrix = p.matrix + column,
           .matrix_step = p.matrix_step,
           .depth = p.depth,
           .more_depth = p.causal ? (t + kTileRows) / Arithmetic::kTerms : 0,
           .row_factor = p.row_factor ? p.row_factor + t : nullptr,
           .target = p.target + t * p.target_step + column,
           .target_step = p.target_step,
           .columns = p.columns - column < kWidth ? p.columns - column : kWidth,
           .fetcher = p.fetcher});
    }
  }
}

// C[i, :] = start + sum_{t < depth} P[t, i] M[t, :] for `channels` channels, rounded up to whole
// strips, which C and row_scale have room for.
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
  LineFetcher* fetcher = nullptr;
  float* pairs_target = nullptr;  // [channels / 2, columns], as the strip's

  std::int64_t fetch_steps() const { return channels / kTileRows * tiles_of(columns); }
};

template <Start kStart>
void multiply_channels(const ChannelsProduct& p) {
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
         .column_scale = p.column_scale,
         .fetcher = p.fetcher,
         .pairs_target = p.pairs_target ? p.pairs_target + i / 2 * p.target_step : nullptr});
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE
