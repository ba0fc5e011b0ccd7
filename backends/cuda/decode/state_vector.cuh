// Rows of states by vectors of 16 bytes: four elements in f32 or eight in 16 bits, and sums over
// the lanes of a warp that have the same columns.
#pragma once

#include "cuda/decode/decode_config.hpp"
#include "cuda/tiles/ptx.cuh"
#include "cuda/tiles/state_rounding.cuh"

namespace attune::cuda::decode {

template <class State>
inline constexpr int kVectorColumns = DecodeConfig::thread_columns(sizeof(State));

// A vector is a float4 whatever it is made of. Addresses are multiples of 16.

template <class State>
__device__ __forceinline__ float4 load_vector(const State* from, std::uint64_t policy) {
  return load_float4(reinterpret_cast<const float*>(from), policy);
}
template <class State>
__device__ __forceinline__ void store_vector(State* to, const float4& vector,
                                             std::uint64_t policy) {
  store_float4(reinterpret_cast<float*>(to), vector, policy);
}

template <class State>
__device__ __forceinline__ void widen(float* to, const float4& vector) {
  const float words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (std::is_same_v<State, float>) {
      to[w] = words[w];
    } else {
      const float2 pair = unpack<State>(__float_as_uint(words[w]));
      to[2 * w] = pair.x;
      to[2 * w + 1] = pair.y;
    }
  }
}

/// Rounded as columns `column` and on of a row are.
template <class State>
__device__ __forceinline__ float4 narrowed(const float* from, const RowRounding& row = {},
                                           std::uint32_t column = 0) {
  float words[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (std::is_same_v<State, float>) {
      words[w] = from[w];
    } else {
      words[w] =
          __uint_as_float(rounded_pair<State>(from[2 * w], from[2 * w + 1], row, column + 2U * w));
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

/// Adds up a thread's columns over the lanes that have other rows of them, those kLanesAcross apart
/// or further. Calls put(to, sums) in one lane for each part of the columns. `to` is of the
/// thread's first column, from which column c is Tile::column_offset(c) apart.
template <class Tile, int kApart = kWarpSize / 2, int kColumns, class Put>
__device__ __forceinline__ void sum_over_lanes(const float (&o)[kColumns], float* to,
                                               const Put& put, bool is_one = true) {
  const bool upper = (threadIdx.x & kApart) != 0;
  if constexpr (kApart < Tile::kLanesAcross) {
    if (is_one) put(to, o);
  } else if constexpr (kColumns == 1) {
    const float sum[1] = {o[0] + __shfl_xor_sync(kFullWarp, o[0], kApart)};
    sum_over_lanes<Tile, kApart / 2>(sum, to, put, is_one && !upper);
  } else {
    // Of two lanes each takes one half of the columns.
    constexpr int kHalf = kColumns / 2;
    const auto half = [&](int c) {
      return (upper ? o[kHalf + c] : o[c]) +
             __shfl_xor_sync(kFullWarp, upper ? o[c] : o[kHalf + c], kApart);
    };
    const auto go_on = [&](const auto& sums) {
      sum_over_lanes<Tile, kApart / 2>(sums, to + (upper ? Tile::column_offset(kHalf) : 0), put,
                                       is_one);
    };
    if constexpr (kHalf == 1) {
      const float sums[] = {half(0)};
      go_on(sums);
    } else if constexpr (kHalf == 2) {
      const float sums[] = {half(0), half(1)};
      go_on(sums);
    } else {
      const float sums[] = {half(0), half(1), half(2), half(3)};
      go_on(sums);
    }
  }
}

/// An even number of them at an address that is a multiple of 8, or one.
template <int kCount>
__device__ __forceinline__ void store_sums(float* to, const float (&sums)[kCount]) {
  if constexpr (kCount == 1) {
    *to = sums[0];
  } else {
    static_assert(kCount % 2 == 0);
#pragma unroll
    for (int c = 0; c < kCount; c += 2) {
      *reinterpret_cast<float2*>(to + c) = {sums[c], sums[c + 1]};
    }
  }
}

/// To what is there.
template <int kCount>
__device__ __forceinline__ void add_sums(float* to, const float (&sums)[kCount]) {
#pragma unroll
  for (int c = 0; c < kCount; ++c) to[c] += sums[c];
}

}  // namespace attune::cuda::decode
