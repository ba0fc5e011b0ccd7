// Products of tiles for AMX-BF16.
#include <immintrin.h>

#include "loops_isa.hpp"

namespace attune::yardsticks {
namespace amx_bf16 {

constexpr int kRows = 16;         // of a tile
constexpr int kBytesPerRow = 64;  // 16 sums, or 16 pairs of bf16
constexpr int kProducts = 6;      // in flight: a product takes 16 cycles and has a latency of 52
constexpr int kFlops = 2 * 16 * 16 * 32;  // of a product

/// Source: Intel Architecture Instruction Set Extensions, "Intel AMX Instruction Set", LDTILECFG.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes_per_row[16] = {};
  std::uint8_t rows[16] = {};
};

static float multiply_add(std::int64_t steps) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.bytes_per_row[tile] = kBytesPerRow;
    config.rows[tile] = kRows;
  }
  _tile_loadconfig(&config);
  alignas(64) std::uint16_t ones[kRows][kBytesPerRow / 2];
  for (auto& row : ones) {
    for (std::uint16_t& value : row) value = 0x3F80;  // bf16's 1
  }
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_loadd(6, ones, kBytesPerRow);
  _tile_loadd(7, ones, kBytesPerRow);
  for (std::int64_t i = 0; i < steps; ++i) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  alignas(64) float sums[kRows][kBytesPerRow / 4];
  float sum = 0;
  _tile_stored(0, sums, kBytesPerRow);
  sum += sums[0][0];
  _tile_stored(5, sums, kBytesPerRow);
  sum += sums[0][0];
  _tile_release();
  return sum;
}

}  // namespace amx_bf16

TileProducts tile_products_amx_bf16() {
  return {"amx_bf16", amx_bf16::multiply_add, std::int64_t{amx_bf16::kProducts} * amx_bf16::kFlops};
}

}  // namespace attune::yardsticks
