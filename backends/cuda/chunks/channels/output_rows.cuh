// How outputs get from the registers of the state warps to memory.
#pragma once

#include "cuda/chunks/channels/state.cuh"

namespace attune::cuda::channels {

/// A warp's outputs, by way of its own columns of the chunk's values.
template <class T, class Shape>
class OutputRows {
 public:
  __device__ OutputRows(const Params& p, const Walk& walk)
      : p_(p),
        to_(rows_of<T>(p.o, walk, walk.head, walk.first_value).first + copied_row() * step() +
            channel(0) + walk.slice * p.output_plane) {}

  /// Writes those of a chunk, which is one after that of the last call.
  __device__ __forceinline__ void store(TileOutputs<Shape>& outputs, const Stage<Shape>& stage,
                                        const Walk& walk, int chunk) {
#pragma unroll
    for (int m = 0; m < Shape::kTiles; ++m) {
      if constexpr (!Shape::kKeysDecay) {  // elsewhere it is in q'
#pragma unroll
        for (int n = 0; n < Shape::kChunk / 8; ++n) {
#pragma unroll
          for (float& output : outputs[m][n]) output *= p_.scale;
        }
      }
      store_outputs<T>(stage.v, tile_channel<Shape>(m), outputs[m]);
    }
    __syncwarp();  // lanes read what other lanes of the warp wrote
    for_each_piece(stage, walk, chunk, [](T* out, std::uint32_t in_tile) {
      *reinterpret_cast<uint4*>(out) = load_shared_16(in_tile);
    });
    to_ += Shape::kChunk * step();
  }

  /// Begins to copy those that this lane wrote of a chunk, one after that of the last call, back to where
  /// store() took them from.
  __device__ __forceinline__ void fetch(const Stage<Shape>& stage, const Walk& walk, int chunk) {
    for_each_piece(stage, walk, chunk,
                   [](T* out, std::uint32_t in_tile) { copy_async_16(in_tile, out, true); });
    to_ += Shape::kChunk * step();
  }
  /// Adds what the lanes of a warp have fetched.
  __device__ static __forceinline__ void add(TileOutputs<Shape>& outputs,
                                             const Stage<Shape>& stage) {
#pragma unroll
    for (int m = 0; m < Shape::kTiles; ++m) {
#pragma unroll
      for (int block = 0; block < Shape::kChunk / 16; ++block) {
        std::uint32_t pairs[4];
        load_matrices_transposed(pairs, stage.v.across(16 * block, tile_channel<Shape>(m)));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 written = unpack<T>(pairs[i]);
          float(&to)[4] = outputs[m][2 * block + i / 2];
          to[i % 2 * 2] += written.x;
          to[i % 2 * 2 + 1] += written.y;
        }
      }
    }
  }

 private:
  __device__ std::int64_t step() const { return p_.reverse ? -p_.o.token : p_.o.token; }
  /// Calls visit(out, in_tile) for what this lane writes of a chunk, 16 bytes at a time.
  template <class Visit>
  __device__ __forceinline__ void for_each_piece(const Stage<Shape>& stage, const Walk& walk,
                                                 int chunk, Visit&& visit) const {
    const int channels = p_.value_channels - walk.first_value;
    const int rows = walk.rows(chunk);
#pragma unroll
    for (int m = 0; m < Shape::kTiles; ++m) {
#pragma unroll
      for (int first = 0; first < Shape::kChunk; first += 16) {
        if (first + copied_row() < rows && channel(m) < channels) {
          visit(to_ + first * step() + (channel(m) - channel(0)),
                stage.v.at(first + copied_row(), channel(m) * 2));
        }
      }
    }
  }
  /// What this lane writes of a tile, of the block's.
  __device__ static int channel(int m) { return tile_channel<Shape>(m) + copied_channel(); }

  const Params& p_;
  T* to_;
};

}  // namespace attune::cuda::channels
