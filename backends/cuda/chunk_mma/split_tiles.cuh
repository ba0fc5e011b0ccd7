// Tiles of f32 as pairs of bf16 (split_pairs.cuh).
#pragma once

#include "cuda/chunk_mma/stages.cuh"
#include "cuda/tiles/split_pairs.cuh"

namespace attune::cuda::chunk_mma {

/// A tile as its high parts and its low parts.
template <class Shape>
struct SplitTile {
  Tile<Shape> high;
  Tile<Shape> low;

  __device__ SplitTile(std::uint32_t begin, int bytes) : high(begin), low(begin + bytes) {}
  /// Bytes from high parts to low ones.
  __device__ std::uint32_t low_behind() const { return low.at(0, 0) - high.at(0, 0); }

  __device__ __forceinline__ SplitBlock down(int row, int channel) const {
    SplitBlock block;
    load_matrices(block.high, high.down(row, channel));
    load_matrices(block.low, low.down(row, channel));
    return block;
  }
  __device__ __forceinline__ SplitBlock across(int row, int channel) const {
    SplitBlock block;
    load_matrices(block.high, high.across(row, channel));
    load_matrices(block.low, low.across(row, channel));
    return block;
  }
  __device__ __forceinline__ SplitBlock down_transposed(int row, int channel) const {
    SplitBlock block;
    load_matrices_transposed(block.high, high.down(row, channel));
    load_matrices_transposed(block.low, low.down(row, channel));
    return block;
  }
  __device__ __forceinline__ SplitBlock across_transposed(int row, int channel) const {
    SplitBlock block;
    load_matrices_transposed(block.high, high.across(row, channel));
    load_matrices_transposed(block.low, low.across(row, channel));
    return block;
  }
};

/// The thread's number among those that do what it does: a block has as many that load chunks as it has
/// that walk them (split_walk.cuh).
template <class Shape>
__device__ __forceinline__ int thread_of_role() {
  return static_cast<int>(threadIdx.x) % Shape::kThreads;
}
/// The same, but not to the compiler: places made of it would wait in registers from chunk to chunk.
template <class Shape>
__device__ __forceinline__ int thread_of_role_again() {
  int thread = thread_of_role<Shape>();
  asm volatile("" : "+r"(thread));
  __builtin_assume(thread >= 0 && thread < Shape::kThreads);
  return thread;
}

/// The tiles of one chunk, high and low parts each; q's only where outputs are made.
template <class Shape, bool kWithQueries>
struct SplitStage {
  static constexpr int kBytes =
      2 * ((kWithQueries ? 2 : 1) * Shape::kKeyTileBytes + Shape::kValueTileBytes);

  __device__ explicit SplitStage(std::uint32_t begin)
      : k(begin, Shape::kKeyTileBytes),
        v(begin + 2 * Shape::kKeyTileBytes, Shape::kValueTileBytes),
        q(begin + 2 * Shape::kKeyTileBytes + 2 * Shape::kValueTileBytes, Shape::kKeyTileBytes) {}
  SplitTile<Shape> k, v, q;
};

/// Of a block's slice.
template <class Shape>
__device__ __forceinline__ int first_key_of(const Walk& walk) {
  return walk.slice * Shape::kKeys;
}
/// From a position's token to the next one's.
template <class View>
__device__ __forceinline__ std::int64_t step(const Walk& walk, const View& view) {
  return walk.reverse ? -view.token : view.token;
}

/// Where a warp's 16 channels of a block's outputs go.
template <class Shape>
class SplitOutputs {
 public:
  __device__ SplitOutputs(const SplitWalkParams& p, const Walk& walk)
      : p_(p),
        o_(rows_of<float>(p.o, walk, walk.head, walk.first_value).first +
           walk.slice * p.output_plane + first_row() * step(walk, p.o) + channel()) {}

  /// Writes those of a chunk. Eight lanes write 32 bytes in a row.
  __device__ __forceinline__ void store(const Outputs<Shape>& outputs, const Walk& walk,
                                        int chunk) const {
    const int rows = walk.rows(chunk) - first_row();
    const int channels = p_.value_channels - walk.first_value - channel();
    const int existing[] = {channels > 0 ? rows : 0, channels > 8 ? rows : 0};
    const std::int64_t apart = step(walk, p_.o);
    float* to = o_ + walk.position(chunk) * apart;
#pragma unroll
    for (int n = 0; n < Shape::kChunk / 8; ++n) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float* const at = to + row * apart;
        if (8 * n + row < existing[0]) at[0] = outputs[n][row];
        if (8 * n + row < existing[1]) at[8] = outputs[n][2 + row];
      }
      to += 8 * apart;
    }
  }

 private:
  /// Of two of every eight tokens' outputs.
  __device__ static int first_row() { return static_cast<int>(threadIdx.x) % 4 * 2; }
  /// And eight channels further.
  __device__ static int channel() {
    return own_channel() + static_cast<int>(threadIdx.x) % kWarpSize / 4;
  }

  const SplitWalkParams& p_;
  float* const o_;
};

/// Where a thread begins to load Tiles of some channels of a tensor.
template <class Tile>
__device__ __forceinline__ const float* first_place(const ConstTokenView& view, const Walk& walk,
                                                    std::int64_t head, int channel) {
  return rows_of<const float>(view, walk, head, channel).first + Tile::place(step(walk, view));
}

}  // namespace attune::cuda::chunk_mma
