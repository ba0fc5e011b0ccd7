// How tiles of 16-bit elements lie in shared memory, and how they come there and go.
//
// A tile has a row for each token of a chunk and is cut into panels of 64 channels. Rows of a panel
// are swizzled: the eight rows of any 8 x 8 matrix fall into different banks.
#pragma once

#include <algorithm>

#include "cuda/tiles/ptx.cuh"
#include "cuda/tiles/tma.cuh"
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

/// A warp's 16 value channels of S^T as the accumulators of mma lie: element [j][e] of a lane is
/// S[k][v] where k = 8 j + 2 (lane % 4) + e % 2 and v = lane / 4 + 8 (e / 2).
template <class Shape>
using State = float[Shape::kKeys / 8][4];
/// The same of O^T, with tokens for k.
template <class Shape>
using Outputs = float[Shape::kChunk / 8][4];

/// The first of a warp's value channels within its block's.
__device__ __forceinline__ int own_channel() {
  return static_cast<int>(threadIdx.x) / kWarpSize * kValuesPerWarp;
}

/// A tile in shared memory, and this lane's place in the 16 x 16 blocks it is read by.
template <class Shape>
class Tile {
 public:
  __device__ explicit Tile(std::uint32_t address) : address_(address) {}

  /// Where this lane's row of block (row, channel) lies when the four 8 x 8 matrices of the block
  /// are counted down its rows first: an `a` operand, or a transposed `b`.
  __device__ std::uint32_t down(int row, int channel) const {
    const unsigned lane = threadIdx.x % kWarpSize;
    return at(row + lane % 16, channel * 2 + lane / 16 * 16);
  }
  /// The same counted across its channels first: a `b` operand, or a transposed `a`.
  __device__ std::uint32_t across(int row, int channel) const {
    const unsigned lane = threadIdx.x % kWarpSize;
    return at(row + lane / 16 * 8 + lane % 8, channel * 2 + lane / 8 % 2 * 16);
  }
  __device__ std::uint32_t at(unsigned row, unsigned byte) const {
    return address_ + byte / kPanelRowBytes * Shape::kPanelBytes +
           swizzled(row, byte % kPanelRowBytes);
  }

 private:
  std::uint32_t address_;
};

/// Stores the transposes of four 8 x 8 matrices as a 16 x 16 block, counted across its channels
/// first.
template <class Shape>
__device__ __forceinline__ void store_transposed(const Tile<Shape>& to, int row, int channel,
                                                 const std::uint32_t (&matrices)[4]) {
#if __CUDA_ARCH__ >= 900
  store_matrices_transposed(to.across(row, channel), matrices[0], matrices[1], matrices[2],
                            matrices[3]);
#else
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int m = 0; m < 4; ++m) {
    store_shared_4(to.at(row + m / 2 * 8 + lane / 4, channel * 2 + m % 2 * 16 + lane % 4 * 4),
                   transpose_matrix(matrices[m]));
  }
#endif
}

/// Writes a warp's part of O^T, 16 value channels by kChunk tokens, to its own columns of a tile.
template <class T, class Shape>
__device__ __forceinline__ void store_outputs(const Tile<Shape>& to, int channel,
                                              const Outputs<Shape>& outputs) {
#pragma unroll
  for (int block = 0; block < Shape::kChunk / 16; ++block) {
    const auto& low = outputs[2 * block];
    const auto& high = outputs[2 * block + 1];
    const std::uint32_t matrices[4] = {pack<T>(low[0], low[1]), pack<T>(low[2], low[3]),
                                       pack<T>(high[0], high[1]), pack<T>(high[2], high[3])};
    store_transposed(to, 16 * block, channel, matrices);
  }
}

}  // namespace attune::cuda
