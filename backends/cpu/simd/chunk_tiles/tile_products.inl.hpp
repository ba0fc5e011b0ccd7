// Products of operands that lie in tiles.
//
// A matrix of tiles lies row of tiles by row of tiles. An operand's tiles along the depth are
// neighbours: A's are [rows / 16][depth / 32], B's are [columns / 16][depth / 32], and results are
// [..][..] of what the caller needs. Two by two accumulators make four products of four loads, so
// that loads, which take half as long, hide behind products.
#pragma once

#include "tile_registers.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

// A matrix of tiles, `across` of them in a row.
struct TileMatrix {
  float* data = nullptr;
  std::int64_t across = 0;

  [[gnu::always_inline]] float* at(std::int64_t i, std::int64_t j) const {
    return data + (i * across + j) * kTileFloats;
  }
};

// Accumulators (m, n) are tiles 2 m + n; operands pass through tiles 4 to 7.
template <int kRows>
[[gnu::always_inline]] inline void zero_block() {
  zero_tile<0>();
  zero_tile<1>();
  if constexpr (kRows == 2) {
    zero_tile<2>();
    zero_tile<3>();
  }
}

// Where the tiles of one accumulator each are.
struct BlockTiles {
  float* tile[4];
};

[[gnu::always_inline]] inline void load_block(const BlockTiles& at) {
  load_tile<0>(at.tile[0]);
  load_tile<1>(at.tile[1]);
  load_tile<2>(at.tile[2]);
  load_tile<3>(at.tile[3]);
}

// Two by two tiles of a matrix of fp32 whose rows are `step` floats apart.
[[gnu::always_inline]] inline void load_block(const float* rows, std::int64_t step) {
  const std::int64_t bytes = step * std::int64_t{sizeof(float)};
  load_tile<0>(rows, bytes);
  load_tile<1>(rows + kLanes, bytes);
  load_tile<2>(rows + kTileRows * step, bytes);
  load_tile<3>(rows + kTileRows * step + kLanes, bytes);
}

template <int kRows>
[[gnu::always_inline]] inline void store_block(const BlockTiles& at) {
  store_tile<0>(at.tile[0]);
  store_tile<1>(at.tile[1]);
  if constexpr (kRows == 2) {
    store_tile<2>(at.tile[2]);
    store_tile<3>(at.tile[3]);
  }
}

// Accumulators += A B, over `depth` tiles. Rows of A's tiles and columns of B's that are next to
// each other are `a_step` and `b_step` floats apart.
template <int kRows>
[[gnu::always_inline]] inline void add_block(const float* a, std::int64_t a_step, const float* b,
                                             std::int64_t b_step, std::int64_t depth) {
#pragma GCC unroll 1
  for (const float* const end = a + depth * kTileFloats; a != end;) {
    load_tile<6>(b);
    load_tile<4>(a);
    multiply_tiles<0, 4, 6>();
    load_tile<7>(b + b_step);
    multiply_tiles<1, 4, 7>();
    if constexpr (kRows == 2) {
      load_tile<5>(a + a_step);
      multiply_tiles<2, 5, 6>();
      multiply_tiles<3, 5, 7>();
    }
    a += kTileFloats;
    b += kTileFloats;
  }
}

// The same where A and B are rows `i` and `j` (and the ones after) of matrices of tiles.
template <int kRows>
[[gnu::always_inline]] inline void add_block(const TileMatrix& a, std::int64_t i,
                                             const TileMatrix& b, std::int64_t j,
                                             std::int64_t depth) {
  add_block<kRows>(a.at(i, 0), a.across * kTileFloats, b.at(j, 0), b.across * kTileFloats, depth);
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
