// Into how many segments a packed sequence that is cut by its own length goes.
#pragma once

#include <cstdint>

namespace attune::cuda {

/// Of a sequence of so many tokens, in parts of so many.
__device__ __forceinline__ int segments_of_length(std::int64_t length, std::int64_t part_tokens) {
  constexpr std::int64_t kMost = 32;  // each starts from what all before it add
  return static_cast<int>(min(max(length / part_tokens, std::int64_t{1}), kMost));
}

}  // namespace attune::cuda
