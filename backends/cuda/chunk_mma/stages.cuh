// Chunks of a block's tensors on their way to shared memory.
#pragma once

#include "walk.cuh"

namespace attune::cuda {

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

/// copy_async_wait() for a number of stages that is known when the kernel runs.
__device__ __forceinline__ void copy_async_wait_for(int pending) {
  if (pending <= 0) copy_async_wait<0>();
  if (pending == 1) copy_async_wait<1>();
  if (pending == 2) copy_async_wait<2>();
}

/// The tokens of one block in memory.
template <class T, class Shape>
class BlockTokens {
 public:
  __device__ BlockTokens(const ChunkMmaParams& p, const Walk& walk)
      : q_(rows_of<const T>(p.q, p, walk, walk.head, 0)),
        k_(rows_of<const T>(p.k, p, walk, walk.head / p.heads_per_kv, 0)),
        v_(rows_of<const T>(p.v, p, walk, walk.head / p.heads_per_kv, walk.first_value)),
        o_(rows_of<T>(p.o, p, walk, walk.head, walk.first_value)),
        keys_(p.key_channels),
        values_(p.value_channels - walk.first_value) {}

  template <bool kWithQueries>
  __device__ __forceinline__ void load(const Stage<Shape, kWithQueries>& to, const Walk& walk,
                                       int chunk) const {
    const std::int64_t position = walk.position(chunk);
    const int rows = walk.rows(chunk);
    load_tile<Shape, Shape::kKeys>(to.k, k_, position, rows, keys_);
    load_tile<Shape, Shape::kValues>(to.v, v_, position, rows, values_);
    if constexpr (kWithQueries) {
      load_tile<Shape, Shape::kKeys>(to.q, q_, position, rows, keys_);
    }
  }

  /// Writes the warp's 16 channels of the chunk's outputs, by way of its own columns of a tile that
  /// nobody else uses.
  __device__ __forceinline__ void store(const Outputs<Shape>& outputs, const Tile<Shape>& through,
                                        const Walk& walk, int chunk) const {
    store_outputs<T>(through, own_channel(), outputs);
    __syncwarp();  // lanes read what other lanes of the warp wrote
    copy_outputs(through, own_channel(), o_, walk.position(chunk), walk.rows(chunk), values_);
  }

 private:
  const Rows<const T> q_, k_, v_;
  const Rows<T> o_;
  const int keys_;
  const int values_;  // of the block's range and beyond it
};

}  // namespace attune::cuda
