// Blocks of a state's columns between a pool in 16 bits and scratch memory in fp32.
#pragma once

#include <attune/core/state_rounding.hpp>

#include "task.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::decode {

// One head of a slot, from the first column of a tile on.
struct HalfState {
  std::uint16_t* data = nullptr;
  std::int64_t key_stride = 0;
  std::int64_t value_stride = 0;
  // What its elements are rounded by: the position of the head's first row among all rows of the
  // pool, and that of the first column among those of its row.
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;
};

inline HalfState half_state_of(const Params& p, const DecodeTask& task, std::int64_t slot) {
  return {.data = static_cast<std::uint16_t*>(p.state.data) + state_offset(p, task, slot),
          .key_stride = p.state.key_stride,
          .value_stride = p.state.value_stride,
          .first_row = (slot * p.heads + task.head) * p.key_dim,
          .first_column = task.column};
}

// A vector of a block's row where it lies, or by way of `lanes` where it has gaps or an end.
[[gnu::always_inline]] inline bool is_whole(const HalfState& state, std::int64_t count) {
  return state.value_stride == 1 && count >= kLanes;
}

template <StorageType kType>
void read_half_rows(const HalfState& state, std::int64_t rows, const BlockRange& block,
                    float* target) {
  const std::uint16_t* source = state.data + block.first * state.value_stride;
  for (std::int64_t i = 0; i < rows; ++i, source += state.key_stride, target += block.width()) {
    for (std::int64_t j = 0; j < block.width(); j += kLanes) {
      const std::int64_t count = block.count - j;
      const std::uint16_t* from = source + j * state.value_stride;
      std::uint16_t lanes[kLanes] = {};
      if (!is_whole(state, count)) {
        for (int lane = 0; lane < kLanes && lane < count; ++lane) {
          lanes[lane] = from[lane * state.value_stride];
        }
        from = lanes;
      }
      store(target + j, widen(kType, reinterpret_cast<const char*>(from)));
    }
  }
}

template <std::size_t... kIndex>
[[gnu::always_inline]] inline U32 lane_numbers(std::index_sequence<kIndex...>) {
  return U32{std::uint32_t{kIndex}...};
}

// Rounds to nearest or, with a key, stochastically.
template <StorageType kType, bool kStochastic>
[[gnu::always_inline]] inline U16 rounded(F32 x, const state_rounding::RowKey& key, U32 columns) {
  if constexpr (!kStochastic) {
    return kType == StorageType::kBF16 ? narrow_bf16(x) : narrow_f16(x);
  } else {
    const U32 random = state_rounding::random_bits(key, columns);
    return narrow_lanes(kType == StorageType::kBF16 ? state_rounding::to_bf16(as_bits(x), random)
                                                    : state_rounding::to_f16(as_bits(x), random));
  }
}

template <StorageType kType, bool kStochastic>
void write_half_rows(const HalfState& state, std::int64_t rows, const BlockRange& block,
                     std::uint64_t seed, const float* source) {
  const U32 lane = lane_numbers(std::make_index_sequence<kLanes>());
  std::uint16_t* target = state.data + block.first * state.value_stride;
  for (std::int64_t i = 0; i < rows; ++i, target += state.key_stride, source += block.width()) {
    state_rounding::RowKey key;
    if constexpr (kStochastic) key = state_rounding::row_key(seed, state.first_row + i);
    for (std::int64_t j = 0; j < block.width(); j += kLanes) {
      const std::int64_t count = block.count - j;
      const auto column = static_cast<std::uint32_t>(state.first_column + block.first + j);
      const U16 halves = rounded<kType, kStochastic>(load(source + j), key, lane + column);
      std::uint16_t* const to = target + j * state.value_stride;
      if (is_whole(state, count)) {
        __builtin_memcpy(to, &halves, sizeof(halves));
        continue;
      }
      for (int k = 0; k < kLanes && k < count; ++k) to[k * state.value_stride] = halves[k];
    }
  }
}

inline void read_half_block(const Params& p, const HalfState& state, const BlockRange& block,
                            float* target) {
  if (p.state_type == StorageType::kBF16) {
    read_half_rows<StorageType::kBF16>(state, p.key_dim, block, target);
  } else {
    read_half_rows<StorageType::kF16>(state, p.key_dim, block, target);
  }
}

inline void write_half_block(const Params& p, const HalfState& state, const BlockRange& block,
                             const float* source) {
  const auto write = [&]<StorageType kType>() {
    if (p.stochastic) {
      write_half_rows<kType, true>(state, p.key_dim, block, p.seed, source);
    } else {
      write_half_rows<kType, false>(state, p.key_dim, block, p.seed, source);
    }
  };
  if (p.state_type == StorageType::kBF16) return write.template operator()<StorageType::kBF16>();
  write.template operator()<StorageType::kF16>();
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::decode
