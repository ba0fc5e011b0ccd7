// How long a forward walk over short sequences takes, which its blocks' beginnings and ends decide.
#pragma once

#include <algorithm>
#include <cmath>

#include "cuda/chunks/likely_lengths.hpp"

namespace attune::cuda {

/// Of sequences without segments. Microseconds, as fitted by each kernel.
struct ShortWalk {
  double block = 0;         // of each, besides its chunks
  double chunk = 0;         // of one
  double chunk_tokens = 1;  // in one
  double rounds = 1;        // of blocks that a device has room for at once
  double key_slices = 1;    // launches one after the other, whose outputs are added
};

/// All blocks together, or the one of the longest sequence, on average over how long that may be.
inline double short_walk_us(const ShortWalk& walk, const LikelyLengths& lengths) {
  constexpr double kLaunch = 1.5, kAddedSlice = 3.3;
  const auto block_us = [&](double tokens) {
    return walk.block + walk.chunk * std::ceil(tokens / walk.chunk_tokens);
  };
  const double of_slice = lengths.average([&](double longest) {
    return std::max(walk.rounds * block_us(lengths.mean), block_us(longest));
  });
  return kLaunch + walk.key_slices * of_slice + kAddedSlice * (walk.key_slices - 1);
}

}  // namespace attune::cuda
