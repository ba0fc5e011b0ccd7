// The shape of an instance of the kernels, and the stages in shared memory that chunks of q, k and
// v are copied to ahead of their use.
#pragma once

#include <algorithm>
#include <array>

#include "cuda/chunk_mma/chunk_mma.hpp"
#include "cuda/chunks/segment_walk.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma {

/// Without stmatrix, storing outputs takes registers that the smallest instances have not got.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr int kMaxWarps = 12;
#else
inline constexpr int kMaxWarps = 16;
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
      std::min(resident_blocks(kKeys, kConfig), kMaxWarps / kConfig.warps);
  static constexpr int kResidentSegmentBlocks = segment_resident_blocks(kKeys);
  static constexpr int kPanelBytes = kChunk * kPanelRowBytes;
  static constexpr int kKeyTileBytes = tile_bytes(kKeys, kConfig);
  static constexpr int kValueTileBytes = tile_bytes(kValues, kConfig);
};

/// Calls f.operator()<Shape>() for the shape that K and a config have.
template <class F>
void with_shape(const SegmentWalkParams& params, const ChunkMmaConfig& config, F&& f) {
  with_value_of<kPaddedKeys>(padded_keys(params.key_channels), [&]<int kKeys>() {
    with_instance(config, [&]<class Config>() {
      if constexpr (is_compiled(kKeys, Config::kValue)) {
        f.template operator()<Shape<kKeys, Config>>();
      } else {
        throw_no_instance("chunk=64 with K > 128");
      }
    });
  });
}

/// Begins to copy a chunk's tokens and `channels` of their channels to a tile of kChannels; zeros
/// fill the rest of it. Eight threads a row of a panel; the threads are kThreads in a row, from a
/// multiple of their number on.
template <class Shape, int kChannels, class T>
__device__ __forceinline__ void load_tile(const Tile<Shape>& to, const Rows<const T>& from,
                                          const Walk& walk, int chunk, int channels) {
  constexpr int kCopies = kPanelChannels / kChannelsPerCopy;
  constexpr int kRows = Shape::kThreads / kCopies;  // at a time
  const int own_row = static_cast<int>(threadIdx.x) % Shape::kThreads / kCopies;
  const int own_channel = static_cast<int>(threadIdx.x) % kCopies * kChannelsPerCopy;
  const int rows = walk.rows(chunk);
#pragma unroll
  for (int first = 0; first < Shape::kChunk; first += kRows) {
    const int row = first + own_row;
    const T* const source = from.at(walk.token(walk.position(chunk) + row)) + own_channel;
#pragma unroll
    for (int panel = 0; panel < kChannels; panel += kPanelChannels) {
      const bool valid = row < rows && panel + own_channel < channels;
      copy_async_16(to.at(row, (panel + own_channel) * 2), source + panel, valid);
    }
  }
}

/// Copies what store_outputs() wrote to memory: a chunk's tokens, the warp's channels below
/// `channels`.
template <class Shape, class T>
__device__ __forceinline__ void copy_outputs(const Tile<Shape>& from, int channel,
                                             const Rows<T>& to, const Walk& walk, int chunk,
                                             int channels) {
  const int own_row = copied_row();
  const int own_channel = channel + copied_channel();
  const int rows = own_channel < channels ? walk.rows(chunk) : 0;
#pragma unroll
  for (int first = 0; first < Shape::kChunk; first += 16) {
    const int row = first + own_row;
    if (row < rows) {
      *reinterpret_cast<uint4*>(to.at(walk.token(walk.position(chunk) + row)) + own_channel) =
          load_shared_16(from.at(row, own_channel * 2));
    }
  }
}

/// The tiles of one chunk; q's only where outputs are made.
template <class Shape, bool kWithQueries>
struct Stage {
  static constexpr int kBytes =
      (kWithQueries ? 2 : 1) * Shape::kKeyTileBytes + Shape::kValueTileBytes;

  __device__ explicit Stage(std::uint32_t begin)
      : k(begin),
        v(begin + Shape::kKeyTileBytes),
        q(begin + Shape::kKeyTileBytes + Shape::kValueTileBytes) {}
  Tile<Shape> k, v, q;
};

// A run-time number of stages, of which there are two: dividing by a number known here is cheap.
static_assert(kAxisValues<&ChunkMmaConfig::stages> == std::array{2, 3});

/// The stage that a chunk's tiles are in.
__device__ __forceinline__ int stage_number(int chunk, int stages) {
  return stages == 2 ? chunk % 2 : chunk % 3;
}

/// copy_async_wait() for all but the newest `stages - 2` chunks.
__device__ __forceinline__ void wait_for_stage(int stages) {
  if (stages == 2) {
    copy_async_wait<0>();
  } else {
    copy_async_wait<1>();
  }
}

/// The tokens of one block in memory.
template <class T, class Shape>
class BlockTokens {
 public:
  __device__ BlockTokens(const SegmentWalkParams& p, const Walk& walk)
      : q_(rows_of<const T>(p.q, walk, walk.head, 0)),
        k_(rows_of<const T>(p.k, walk, walk.head / p.heads_per_kv, 0)),
        v_(rows_of<const T>(p.v, walk, walk.head / p.heads_per_kv, walk.first_value)),
        o_(rows_of<T>(p.o, walk, walk.head, walk.first_value)),
        keys_(p.key_channels),
        values_(p.value_channels - walk.first_value) {}

  template <bool kWithQueries>
  __device__ __forceinline__ void load(const Stage<Shape, kWithQueries>& to, const Walk& walk,
                                       int chunk) const {
    load_tile<Shape, Shape::kKeys>(to.k, k_, walk, chunk, keys_);
    load_tile<Shape, Shape::kValues>(to.v, v_, walk, chunk, values_);
    if constexpr (kWithQueries) load_tile<Shape, Shape::kKeys>(to.q, q_, walk, chunk, keys_);
  }

  /// Writes the warp's 16 channels of the chunk's outputs, by way of its own columns of a tile that
  /// nobody else uses.
  __device__ __forceinline__ void store(const Outputs<Shape>& outputs, const Tile<Shape>& through,
                                        const Walk& walk, int chunk) const {
    store_outputs<T>(through, own_channel(), outputs);
    __syncwarp();  // lanes read what other lanes of the warp wrote
    copy_outputs(through, own_channel(), o_, walk, chunk, values_);
  }

 private:
  const Rows<const T> q_, k_, v_;
  const Rows<T> o_;
  const int keys_;
  const int values_;  // of the block's range and beyond it
};

}  // namespace attune::cuda::chunk_mma
