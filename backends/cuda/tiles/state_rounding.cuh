// Elements of states on their way to and from memory: State is float, __half or __nv_bfloat16, and
// sums are fp32. to_float() and unpack() of element.cuh load them; here is how they are stored, by
// the rules of core/state_rounding.hpp and so to the same bits as on a CPU.
#pragma once

#include <attune/core/state_rounding.hpp>

#include "cuda/tiles/element.cuh"

namespace attune::cuda {

/// How the elements of one row [s, h, i, :] of a pool of states [S, H, K, V] are rounded.
struct RowRounding {
  bool stochastic = false;
  state_rounding::RowKey key;  // of stochastic
};

/// Of row (s * H + h) * K + i.
__device__ __forceinline__ RowRounding row_rounding(const StateRounding& rounding,
                                                    std::int64_t row) {
  if (rounding.kind != StateRounding::Kind::kStochastic) return {};
  return {.stochastic = true, .key = state_rounding::row_key(rounding.seed, row)};
}

/// The bits of a 16-bit State, in the lower half of the word.
template <class State>
__device__ __forceinline__ std::uint32_t stochastic_bits(float x, const state_rounding::RowKey& key,
                                                         std::uint32_t column) {
  const std::uint32_t random = state_rounding::random_bits(key, column);
  if constexpr (std::is_same_v<State, __nv_bfloat16>) {
    return state_rounding::to_bf16(__float_as_uint(x), random);
  } else {
    static_assert(std::is_same_v<State, __half>);
    return state_rounding::to_f16(__float_as_uint(x), random);
  }
}

/// Element `column` of the row. A float is not rounded, whatever is asked for.
template <class State>
__device__ __forceinline__ State rounded(float x, const RowRounding& row, std::uint32_t column) {
  if constexpr (!std::is_same_v<State, float>) {
    if (row.stochastic) {
      const auto bits = static_cast<unsigned short>(stochastic_bits<State>(x, row.key, column));
      if constexpr (std::is_same_v<State, __half>) {
        return __ushort_as_half(bits);
      } else {
        return __ushort_as_bfloat16(bits);
      }
    }
  }
  return from_float<State>(x);
}

/// Elements `column` and `column + 1` of the row, 16-bit ones, `low` at the lower address.
template <class State>
__device__ __forceinline__ std::uint32_t rounded_pair(float low, float high, const RowRounding& row,
                                                      std::uint32_t column) {
  if (!row.stochastic) return pack<State>(low, high);
  return stochastic_bits<State>(low, row.key, column) |
         stochastic_bits<State>(high, row.key, column + 1) << 16U;
}

}  // namespace attune::cuda
