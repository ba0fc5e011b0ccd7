// Sequences marked every `tokens` tokens, as checkpoints and segments are. The parts of all
// sequences share one numbering that needs no look at cu_seqlens on the host: a sequence of n
// tokens has n / tokens + 1 numbers to itself, of which its last ones may be without use.
#pragma once

#include <algorithm>
#include <cstdint>

namespace attune::cuda {

/// Numbers of all sequences together, an upper bound.
constexpr std::int64_t part_count(std::int64_t sequences, std::int64_t tokens, bool packed,
                                  std::int64_t tokens_per_part) {
  return packed ? tokens / tokens_per_part + sequences : sequences * (tokens / tokens_per_part + 1);
}

/// Into how many segments a sequence of so many tokens goes, in parts of so many.
constexpr int segments_of_length(std::int64_t length, std::int64_t tokens_per_part) {
  constexpr std::int64_t kMost = 32;  // each starts from what all before it add
  return static_cast<int>(std::clamp(length / tokens_per_part, std::int64_t{1}, kMost));
}

}  // namespace attune::cuda
