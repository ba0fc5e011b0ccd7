// The state of a block in the registers of its state warps, 16 value channels a warp and tile.
//
// Where the segments of a sequence start from: S_r = D_{r-1} S_{r-1} + L_{r-1}, where L is what a
// subsegment adds to an empty state and D its total decay, of every channel. A first launch finds L
// and D of the subsegments of all segments but the last; the first one's L includes the caller's
// initial state, unless summaries are wanted. Of many segments a launch of its own then makes S_r
// (segment_starts.hpp), so that a walk need not pass all before its own.
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

// ---- at the start and the end of a segment

/// The walk of a subsegment, which is what walk.segment then says; `walk` is of its head.
template <class Shape>
__device__ __forceinline__ Walk walk_of_subsegment(const Params& p, Walk walk, int subsegment) {
  const int subsegments = p.subsegments;
  const int segment = subsegment / subsegments;
  const int length = static_cast<int>(walk.span.length);
  const int chunks = (length + Shape::kChunk - 1) / Shape::kChunk;
  const int per_segment = (chunks + walk.segments - 1) / walk.segments;
  const int begin = segment * per_segment;
  const int cut = begin + per_segment * (walk.segments - 1 - segment) / walk.segments;
  const int first = min(subsegments == 2 && subsegment % 2 == 1 ? cut : begin, chunks);
  const int end = subsegments == 2 && subsegment % 2 == 0 ? cut : begin + per_segment;
  walk.segment = subsegment;
  walk.skipped = min(first * Shape::kChunk, length);
  walk.left = length - walk.skipped;
  walk.chunks = min(end, chunks) - first;
  return walk;
}

/// Number of the saved initial state: behind those of segments that others start from.
__device__ __forceinline__ std::int64_t saved_initial_index(const Params& p, const Walk& walk) {
  return sum_index(p, walk, p.subsegments * (walk.segments - 1));
}
/// This lane's float4s of a tile of a saved state: number j is at [j * kWarpSize].
template <class Shape>
__device__ __forceinline__ float4* saved_elements(const Params& p, const Walk& walk,
                                                  std::int64_t saved, int m) {
  const int tile = walk.value_tile * Shape::kValues + tile_channel<Shape>(m);
  const std::int64_t row = (saved * p.value_tiles * Shape::kValues + tile) / kValuesPerWarp;
  return p.segment_states + row * (Shape::kKeys / 8 * kWarpSize) + threadIdx.x % kWarpSize;
}

template <class Shape>
__device__ __forceinline__ void save_states(const States<Shape>& states, const Params& p,
                                            const Walk& walk, std::int64_t saved) {
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    float4* const to = saved_elements<Shape>(p, walk, saved, m);
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
      const float(&x)[4] = states[m][j];
      to[j * kWarpSize] = {x[0], x[1], x[2], x[3]};
    }
  }
}

template <class Shape>
__device__ __forceinline__ void load_saved(States<Shape>& states, const Params& p, const Walk& walk,
                                           std::int64_t saved) {
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    const float4* const from = saved_elements<Shape>(p, walk, saved, m);
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
      const float4 x = from[j * kWarpSize];
      states[m][j][0] = x.x;
      states[m][j][1] = x.y;
      states[m][j][2] = x.z;
      states[m][j][3] = x.w;
    }
  }
}

/// states = D states + L of a subsegment.
template <class Shape>
__device__ __forceinline__ void pass_subsegment(States<Shape>& states, const Params& p,
                                                const Walk& walk, std::int64_t saved) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
  const float* const value_decays =
      p.segment_value_decays + (saved * p.value_tiles + walk.value_tile) * Shape::kValues;
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    const float4* const from = saved_elements<Shape>(p, walk, saved, m);
    float rows[2] = {1.0F, 1.0F};
    if constexpr (Shape::kValuesDecay) {
      for (int row = 0; row < 2; ++row) rows[row] = value_decays[lane_channel<Shape>(m, row)];
    }
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
      float2 columns{1.0F, 1.0F};
      if constexpr (Shape::kKeysDecay) {
        columns = *reinterpret_cast<const float2*>(p.segment_decays + saved * Shape::kKeys + 8 * j +
                                                   first);
      }
      const float4 added = from[j * kWarpSize];
      float(&x)[4] = states[m][j];
      x[0] = fmaf(x[0], columns.x * rows[0], added.x);
      x[1] = fmaf(x[1], columns.y * rows[0], added.y);
      x[2] = fmaf(x[2], columns.x * rows[1], added.z);
      x[3] = fmaf(x[3], columns.y * rows[1], added.w);
    }
  }
}

/// The walk of one of a block's tiles, whose value channels are 64 from the next one's.
template <class Shape>
__device__ __forceinline__ Walk walk_of_tile(Walk walk, int m) {
  walk.first_value += tile_channel<Shape>(m) - own_channel();
  return walk;
}

/// The caller's initial state.
template <class Shape>
__device__ __forceinline__ void load_initial_states(States<Shape>& states, const Params& p,
                                                    const Walk& walk) {
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    load_initial<Shape>(states[m], p, walk_of_tile<Shape>(walk, m));
  }
}

/// The state at the start of the block's segment. A copy of the initial state is saved:
/// the last segment may write the final state over it while the first one still has to start.
template <class Shape>
__device__ __forceinline__ void load_start(States<Shape>& states, const Params& p,
                                           const Walk& walk) {
  const bool from_initial = walk.segments == 1 || p.sums_all();
  if (from_initial) {
    load_initial_states<Shape>(states, p, walk);
  } else if (walk.segment == 0) {
    return load_saved<Shape>(states, p, walk, saved_initial_index(p, walk));
  } else if (p.has_starts) {
    return load_saved<Shape>(states, p, walk, sum_index(p, walk, walk.segment - 1));
  } else {
    load_saved<Shape>(states, p, walk, sum_index(p, walk, 0));
  }
  const int subsegments = walk.segment * p.subsegments;
#pragma unroll 1
  for (int subsegment = from_initial ? 0 : 1; subsegment < subsegments; ++subsegment) {
    pass_subsegment<Shape>(states, p, walk, sum_index(p, walk, subsegment));
  }
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

// ---- outputs

/// A warp's outputs on their way to memory, by way of its own columns of the chunk's values.
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
    const int channels = p_.value_channels - walk.first_value;
    const int rows = walk.rows(chunk);
#pragma unroll
    for (int m = 0; m < Shape::kTiles; ++m) {
#pragma unroll
      for (int first = 0; first < Shape::kChunk; first += 16) {
        if (first + copied_row() < rows && channel(m) < channels) {
          *reinterpret_cast<uint4*>(to_ + first * step() + (channel(m) - channel(0))) =
              load_shared_16(stage.v.at(first + copied_row(), channel(m) * 2));
        }
      }
    }
    to_ += Shape::kChunk * step();
  }

 private:
  __device__ std::int64_t step() const { return p_.reverse ? -p_.o.token : p_.o.token; }
  /// What this lane writes of a tile, of the block's.
  __device__ static int channel(int m) { return tile_channel<Shape>(m) + copied_channel(); }

  const Params& p_;
  T* to_;
};

}  // namespace attune::cuda::channels
