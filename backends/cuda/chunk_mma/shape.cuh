#pragma once

#include <algorithm>

#include "cuda/chunks/mma_tile.cuh"
#include "launch.hpp"

namespace attune::cuda {

/// Without stmatrix, storing outputs takes registers that the smallest instances have not got.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr int kMostWarps = 12;
#else
inline constexpr int kMostWarps = 16;
#endif

/// One instance of the kernels: its padded key channels and its config.
template <int kKeyChannels, class Config>
struct Shape {
  static constexpr ChunkMmaConfig kConfig = Config::kValue;
  static constexpr int kKeys = kKeyChannels;
  static constexpr int kChunk = kConfig.chunk;
  static constexpr int kThreads = threads_per_block(kConfig);
  static constexpr int kValues = values_per_block(kConfig);
  static constexpr int kResidentBlocks =
      std::min(resident_blocks(kKeys, kConfig), kMostWarps / kConfig.warps);
  static constexpr int kResidentSegmentBlocks = segment_resident_blocks(kKeys);
  static constexpr int kPanelBytes = kChunk * kPanelRowBytes;
  static constexpr int kKeyTileBytes = tile_bytes(kKeys, kConfig);
  static constexpr int kValueTileBytes = tile_bytes(kValues, kConfig);
};

}  // namespace attune::cuda
