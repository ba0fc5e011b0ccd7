// Eight tile registers of 16 rows by 64 bytes, and the one product they are for:
//
//   C[m, n] += sum_{k < 32} A[m, k] B[k, n]        C fp32 [16, 16], A and B bf16
//
// A lies in memory row by row, [16][32]; B by pairs of rows, [16][16][2]: row k / 2, column n,
// k % 2. Products are exact, sums are fp32, and denormals count as zero. Each tile is 1 KB of
// contiguous memory: rows of a tensor that are a power of two apart would meet in one set of the
// cache. Source: Intel Architecture Instruction Set Extensions, "Intel AMX Instruction Set",
// TDPBF16PS.
//
// With ATTUNE_EMULATED_TILES the registers are memory and the product is a loop, for tests on
// machines without them.
#pragma once

#include "cpu/simd/vector/rows.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

static_assert(kLanes == 16, "a row of a tile is one vector");

inline constexpr std::int64_t kTileRows = 16;
inline constexpr std::int64_t kTileDepth = 32;    // bf16 in a row of A
inline constexpr std::int64_t kTileFloats = 256;  // of memory, whatever is in it

#if !defined(ATTUNE_EMULATED_TILES)

// Makes this thread's tile registers 16 rows of 64 bytes each.
inline void configure_tiles() {
  // Intel SDM volume 2, LDTILECFG: the memory format of palette 1.
  struct alignas(64) {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } const config;
  asm volatile("ldtilecfg %0" ::"m"(config));
}

// Left configured, they would be saved and restored whenever threads change places.
inline void release_tiles() { asm volatile("tilerelease"); }

// The compiler does not know what these read and write, hence the memory clobbers.
template <int kTile>
[[gnu::always_inline]] inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

// Rows are `step` bytes apart.
template <int kTile>
[[gnu::always_inline]] inline void load_tile(const float* source, std::int64_t step = 64) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(source), "r"(step), "i"(kTile) : "memory");
}

template <int kTile>
[[gnu::always_inline]] inline void store_tile(float* target) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(target), "r"(std::int64_t{64}), "i"(kTile)
               : "memory");
}

template <int kC, int kA, int kB>
[[gnu::always_inline]] inline void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

#else

static thread_local float emulated_tiles[8][kTileFloats];

inline void configure_tiles() {}

// What a released register holds is gone.
inline void release_tiles() { __builtin_memset(emulated_tiles, 0xff, sizeof(emulated_tiles)); }

template <int kTile>
void zero_tile() {
  __builtin_memset(emulated_tiles[kTile], 0, sizeof(emulated_tiles[kTile]));
}

template <int kTile>
void load_tile(const float* source, std::int64_t step = 64) {
  for (std::int64_t row = 0; row < kTileRows; ++row) {
    __builtin_memcpy(emulated_tiles[kTile] + row * kLanes,
                     reinterpret_cast<const char*>(source) + row * step, 64);
  }
}

template <int kTile>
void store_tile(float* target) {
  __builtin_memcpy(target, emulated_tiles[kTile], sizeof(emulated_tiles[kTile]));
}

inline float emulated_bf16(const float* tile, std::int64_t index) {
  std::uint16_t half = 0;
  __builtin_memcpy(&half, reinterpret_cast<const char*>(tile) + 2 * index, sizeof(half));
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float value = 0.0F;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

template <int kC, int kA, int kB>
void multiply_tiles() {
  for (std::int64_t m = 0; m < kTileRows; ++m) {
    for (std::int64_t k = 0; k < kTileDepth; ++k) {
      const float a = emulated_bf16(emulated_tiles[kA], m * kTileDepth + k);
      for (std::int64_t n = 0; n < kLanes; ++n) {
        const float b = emulated_bf16(emulated_tiles[kB], (k / 2 * kLanes + n) * 2 + k % 2);
        emulated_tiles[kC][m * kLanes + n] += a * b;
      }
    }
  }
}

#endif

// ---- products of matrices in tiles ----
//
// Products of operands that lie in tiles.
//
// A matrix of tiles lies row of tiles by row of tiles. An operand's tiles along the depth are
// neighbours: A's are [rows / 16][depth / 32], B's are [columns / 16][depth / 32], and results are
// [..][..] of what the caller needs. Two by two accumulators make four products of four loads, so
// that loads, which take half as long, hide behind products.

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

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles
