// Indices in device memory whose loads are under way while others are asked for.
#pragma once

#include <cstdint>

namespace attune::cuda {

/// An index on its way from memory: nothing waits for it before its value is taken.
struct RawIndex {
  std::uint32_t low = 0;
  std::int32_t high = 0;  // of an i64
  bool is_i64 = false;

  __device__ __forceinline__ std::int64_t value() const {
    const std::int32_t sign = static_cast<std::int32_t>(low) >> 31;
    return static_cast<std::int64_t>(is_i64 ? high : sign) << 32 | low;
  }
};
__device__ __forceinline__ RawIndex read_index(const void* indices, bool is_i64, std::int64_t at) {
  const auto* const words = static_cast<const std::int32_t*>(indices) + (is_i64 ? 2 * at : at);
  RawIndex index{.low = static_cast<std::uint32_t>(words[0]), .is_i64 = is_i64};
  if (is_i64) index.high = words[1];
  return index;
}

}  // namespace attune::cuda
