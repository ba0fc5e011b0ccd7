// A head's state between the caller's layout and blocks of columns, each contiguous.
#pragma once

#include "rows.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE {

// One head of a caller's state, from the first column of a tile on.
template <class Pointer>
struct StateView {
  Pointer data = nullptr;
  std::int64_t key_stride = 0;
  std::int64_t value_stride = 0;
};

// Columns that are worked on together: [first, first + width) of the tile, of which `count` exist.
struct BlockRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  int vectors = 0;

  std::int64_t width() const { return std::int64_t{vectors} * kLanes; }
};

// The blocks of a tile from the left: the widest while they are whole, then halves and quarters.
inline BlockRange block_at(std::int64_t columns, int block_vectors, std::int64_t column) {
  const std::int64_t left = columns - column;
  BlockRange block{column, left, block_vectors};
  while (block.vectors > 1 && block.width() > round_up_to_lanes(left)) block.vectors /= 2;
  if (block.count > block.width()) block.count = block.width();
  return block;
}

// Whether a block of the caller's state can be read or written by vectors where it lies.
template <class Pointer>
bool is_direct(const StateView<Pointer>& state, const BlockRange& block) {
  return state.data && state.value_stride == 1 && block.count == block.width();
}

// Columns that do not exist, and a state that is not given, are zero.
inline void read_block(const StateView<const float*>& state, std::int64_t rows,
                       const BlockRange& block, float* target) {
  const std::int64_t width = block.width();
  if (!state.data || block.count < width) {
    for (std::int64_t i = 0; i < rows * width; ++i) target[i] = 0.0F;
  }
  if (!state.data) return;
  const float* source = state.data + block.first * state.value_stride;
  for (std::int64_t j = 0; j < block.count; ++j) {
    for (std::int64_t row = 0; row < rows; ++row) {
      target[row * width + j] = source[row * state.key_stride + j * state.value_stride];
    }
  }
}

inline void write_block(const StateView<float*>& state, std::int64_t rows, const BlockRange& block,
                        const float* source) {
  float* target = state.data + block.first * state.value_stride;
  for (std::int64_t j = 0; j < block.count; ++j) {
    for (std::int64_t row = 0; row < rows; ++row) {
      target[row * state.key_stride + j * state.value_stride] = source[row * block.width() + j];
    }
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE
