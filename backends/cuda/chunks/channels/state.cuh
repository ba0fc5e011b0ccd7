// The state of a block in the registers of its state warps, 16 value channels a warp and tile.
#pragma once

#include "cuda/chunks/channels/operands.cuh"

namespace attune::cuda::channels {

/// A warp's tiles of S^T and of O^T; tile m has channels 64 m + 16 warp and on of the block's.
template <class Shape>
using States = float[Shape::kTiles][Shape::kKeys / 8][4];
template <class Shape>
using TileOutputs = float[Shape::kTiles][Shape::kChunk / 8][4];

/// The first value channel of a warp's tile, of the block's.
template <class Shape>
__device__ __forceinline__ int tile_channel(int m) {
  return Shape::kStateWarps * kValuesPerWarp * m + own_channel();
}

/// This lane's value channel in row `row`, 0 or 1, of a tile.
template <class Shape>
__device__ __forceinline__ int lane_channel(int m, int row) {
  return tile_channel<Shape>(m) + static_cast<int>(threadIdx.x) % kWarpSize / 4 + 8 * row;
}

/// V^T of the chunk's tokens as `a` operands, of one tile; [step] has tokens 16 step and on.
template <class Shape>
using ValueOperands = std::uint32_t[Shape::kChunk / 16][4];

template <class T, class Shape>
__device__ __forceinline__ void load_values(ValueOperands<Shape>& values, const Stage<Shape>& stage,
                                            int m) {
#pragma unroll
  for (int step = 0; step < Shape::kChunk / 16; ++step) {
    load_matrices_transposed(values[step], stage.v.across(16 * step, tile_channel<Shape>(m)));
    if constexpr (!std::is_same_v<T, Operand<T, Shape>>) {
#pragma unroll
      for (std::uint32_t& pair : values[step]) {
        const float2 value = unpack<T>(pair);
        pair = pack<Operand<T, Shape>>(value.x, value.y);
      }
    }
  }
}

/// A state that becomes an operand of f16 is scaled, so that it may have elements of up to 2^20.
/// Where a warp has larger ones, it scales all of its by kMoreScale as well.
inline constexpr float kNarrowScale = 1.0F / 16.0F;
inline constexpr float kMoreScale = 1.0F / 65536.0F;

/// Looks for pairs of f16 that are beyond its range.
class NarrowRange {
 public:
  __device__ __forceinline__ void see(std::uint32_t pair) {
    seen_ = fma_f16_pairs(pair, 0, seen_);  // NaN from an infinity or NaN on
  }
  /// Whether all that the lanes of a warp saw are finite.
  __device__ __forceinline__ bool holds_all() const {
    constexpr std::uint32_t kMagnitudes = 0x7fff7fffU;
    return !__any_sync(kFullWarp, (seen_ & kMagnitudes) != 0);
  }

 private:
  std::uint32_t seen_ = 0;  // zeros, of either sign
};

/// Rows of a tile of S^T times two factors.
template <class Shape>
__device__ __forceinline__ void scale_rows(State<Shape>& state, float low, float high) {
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) state[j][e] *= e / 2 == 0 ? low : high;
  }
}

/// The walk of one of a block's tiles, whose value channels are 64 from the next one's.
template <class Shape>
__device__ __forceinline__ Walk walk_of_tile(Walk walk, int m) {
  walk.first_value += tile_channel<Shape>(m) - own_channel();
  return walk;
}

/// Makes elements of the last reference the true state's.
template <class Shape>
struct Rests {
  float values[Shape::kTiles][2];  // of a lane's two rows of a tile
  const Shared<Shape>& shared;

  __device__ __forceinline__ explicit Rests(const Shared<Shape>& rests) : shared(rests) {
#pragma unroll
    for (int m = 0; m < Shape::kTiles; ++m) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        if constexpr (Shape::kValuesDecay) {
          values[m][row] = exp2_approx(rests.value_rests[lane_channel<Shape>(m, row)]);
        }
      }
    }
  }
  /// Element e of tile m's j-th product.
  __device__ __forceinline__ float of(float element, int m, int j, int e) const {
    if constexpr (Shape::kValuesDecay) element *= values[m][e / 2];
    if constexpr (Shape::kKeysDecay) {
      const int key = 8 * j + static_cast<int>(threadIdx.x) % 4 * 2 + e % 2;
      element *= exp2_approx(shared.key_rests[key]);
    }
    return element;
  }
};

/// The true state of what the last reference made of it.
template <class Shape>
__device__ __forceinline__ void undo_reference(States<Shape>& states, const Shared<Shape>& shared) {
  const Rests<Shape> rests(shared);
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) states[m][j][e] = rests.of(states[m][j][e], m, j, e);
    }
  }
}

/// Stores the state in one of [H, K, V], where there is one.
template <class Shape>
__device__ __forceinline__ void store_states(States<Shape>& states, const Params& p,
                                             const Walk& walk, const StateView& to) {
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    store_state<Shape>(states[m], p, walk_of_tile<Shape>(walk, m), to);
  }
}

/// Stores what undo_reference() would make of the state, and leaves it as it is. That `to` lies in
/// global memory is said as each load of a rest, from shared memory, would else wait for the store
/// before it.
template <class Shape>
__device__ __forceinline__ void store_snapshot(States<Shape>& states, const Shared<Shape>& shared,
                                               const Params& p, const Walk& walk,
                                               const StateView& to) {
  if (to.data == nullptr) return;
  __builtin_assume(__isGlobal(to.data));
  const Rests<Shape> rests(shared);
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    for_each_element<Shape>(states[m], p, walk_of_tile<Shape>(walk, m), to,
                            [&](float element, std::int64_t at, int j, int e) {
                              to.data[at] = rests.of(element, m, j, e);
                            });
  }
}

}  // namespace attune::cuda::channels
