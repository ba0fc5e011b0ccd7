// Eight tile registers of 16 rows by 64 bytes, and the one product they are for:
//
//   C[m, n] += sum_{k < 32} A[m, k] B[k, n]        C fp32 [16, 16], A and B bf16
//
// A lies in memory row by row, [16][32]; B by pairs of rows, [16][16][2]: row k / 2, column n, k
// % 2. Products are exact, sums are fp32, and denormals count as zero. Each tile is 1 KB of
// contiguous memory: rows of a tensor that are a power of two apart would meet in one set of the
// cache. Source: Intel Architecture Instruction Set Extensions, "Intel AMX Instruction Set",
// TDPBF16PS.
//
// With ATTUNE_EMULATED_TILES the registers are memory and the product is a loop, for tests on
// machines without them.
#pragma once

#include "cpu/simd/rows.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

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

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
