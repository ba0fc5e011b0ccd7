// The state of one value tile (state.cuh) to and from memory: states of [H, K, V], and the scratch
// memory by which the segments of a sequence have theirs.
#pragma once

#include "cuda/chunks/value_pairs.cuh"
#include "cuda/wgmma_walk/state.cuh"

#if ATTUNE_SM90A_CODE

namespace attune::cuda::chunk_wgmma {

/// Whether all of the tile is there, in pairs.
template <int kTileK, class View>
__device__ __forceinline__ bool has_whole_pairs(const WalkParams& p, const View& state,
                                                int first_v) {
  const bool is_whole = p.extents.K == kTileK && first_v + kStateRows <= p.extents.V;
  return is_whole && state.data != nullptr && has_value_pairs(state);
}

/// A lane's first pair in one of [H, K, V]. The next keys' are state.k and 8 state.k further.
template <class View>
__device__ __forceinline__ auto* first_pair(const View& state, const WalkItem& item, const Lane& me,
                                            int first_v) {
  return state.data + item.head * state.head + me.column * state.k + first_v + me.row + pair_row();
}

template <int kTileK>
__device__ __forceinline__ void load_pairs(StateTile<kTileK>& state, const WalkItem& item,
                                           const Lane& me, int first_v,
                                           const ConstStateView& from) {
  const float* at = first_pair(from, item, me, first_v);
#pragma unroll
  for (int i = 0; i < StateTile<kTileK>::kCount; i += 4, at += 8 * from.k) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float2 pair = *reinterpret_cast<const float2*>(at + j * from.k);
      state[i + j] = pair.x;
      state[i + j + 2] = pair.y;
    }
  }
#pragma unroll
  for (int i = 0; i < StateTile<kTileK>::kCount; i += 4) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float2 rows = swapped_rows(state[i + j], state[i + j + 2]);
      state[i + j] = rows.x;
      state[i + j + 2] = rows.y;
    }
  }
}

template <int kTileK>
__device__ __forceinline__ void store_pairs(StateTile<kTileK>& state, const WalkItem& item,
                                            const Lane& me, int first_v, const StateView& to) {
  float* at = first_pair(to, item, me, first_v);
#pragma unroll
  for (int i = 0; i < StateTile<kTileK>::kCount; i += 4, at += 8 * to.k) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      *reinterpret_cast<float2*>(at + j * to.k) = swapped_rows(state[i + j], state[i + j + 2]);
    }
  }
}

template <class Shape>
__device__ __forceinline__ ConstStateView initial_state(const WalkParams& p, const WalkItem& item) {
  if constexpr (Shape::kIsPool) {
    return state_at(p.initial, item.n, item.first_slot);
  } else {
    return state_of(p.initial, item.n);
  }
}

/// Loads one of [H, K, V], or zeros where there is none. Where elements lie is found by adding: a product
/// for each is so much code that blocks wait for it.
template <class Shape, int kTileK>
__device__ __forceinline__ void load_state(StateTile<kTileK>& state, const WalkParams& p,
                                           const WalkItem& item, const Lane& me, int first_v) {
  const ConstStateView from = initial_state<Shape>(p, item);
  if constexpr (Shape::kIsPool) {
    if (has_whole_pairs<kTileK>(p, from, first_v))
      return load_pairs(state, item, me, first_v, from);
  }
  if (from.data == nullptr) return state.clear();
  const std::int64_t v = first_v + me.row;
  const bool is_whole = p.extents.K == kTileK && first_v + kStateRows <= p.extents.V;
  const float* at = from.data + item.head * from.head + me.column * from.k + v * from.v;
#pragma unroll
  for (int i = 0; i < StateTile<kTileK>::kCount; i += 4, at += 8 * from.k) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool exists = i * 2 + me.column + j % 2 < p.extents.K && v + j / 2 * 8 < p.extents.V;
      state[i + j] = is_whole || exists ? at[j % 2 * from.k + j / 2 * 8 * from.v] : 0.0F;
    }
  }
}

/// Stores the state in one of [H, K, V].
template <class Shape, int kTileK>
__device__ __forceinline__ void store_state(StateTile<kTileK>& state, const WalkParams& p,
                                            const WalkItem& item, const Lane& me, int first_v,
                                            const StateView& to) {
  if constexpr (Shape::kIsPool) {
    if (has_whole_pairs<kTileK>(p, to, first_v)) return store_pairs(state, item, me, first_v, to);
  }
  const std::int64_t v = first_v + me.row;
  const bool is_whole = p.extents.K == kTileK && first_v + kStateRows <= p.extents.V;
  float* at = to.data + item.head * to.head + me.column * to.k + v * to.v;
#pragma unroll
  for (int i = 0; i < StateTile<kTileK>::kCount; i += 4) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool exists = i * 2 + me.column + j % 2 < p.extents.K && v + j / 2 * 8 < p.extents.V;
      if (is_whole || exists) at[j % 2 * to.k + j / 2 * 8 * to.v] = state[i + j];
    }
    at += 8 * to.k;
  }
}

/// Where a warpgroup's part of a subsegment's state is in the scratch memory, for the four registers that
/// a thread moves at once; those of step i are at [i * kWarpgroupSize].
template <class Shape>
__device__ __forceinline__ float4* scratch_state(const WalkParams& p, const WalkItem& item,
                                                 int subsegment, int warpgroup, int thread) {
  const SumsOfWalk<Shape> sums(p, item);
  const int tile = item.tile * (Shape::kTileV / kStateRows) + warpgroup;
  const std::int64_t index =
      (sums.walk * p.scratch.tiles + tile) * sums.count + sums.first + subsegment;
  return reinterpret_cast<float4*>(p.scratch.states + index * Shape::kTileK * kStateRows) + thread;
}

template <int kTileK>
__device__ __forceinline__ void store_scratch(StateTile<kTileK>& state, float4* to) {
#pragma unroll
  for (int i = 0; i < StateTile<kTileK>::kCount / 4; ++i) {
    to[i * kWarpgroupSize] = {state[4 * i], state[4 * i + 1], state[4 * i + 2], state[4 * i + 3]};
  }
}

/// state = decay * state + *from
template <int kTileK>
__device__ __forceinline__ void add_scratch(StateTile<kTileK>& state, float decay,
                                            const float4* from) {
#pragma unroll
  for (int i = 0; i < StateTile<kTileK>::kCount / 4; ++i) {
    const float4 add = __ldcg(from + i * kWarpgroupSize);
    state[4 * i] = decay * state[4 * i] + add.x;
    state[4 * i + 1] = decay * state[4 * i + 1] + add.y;
    state[4 * i + 2] = decay * state[4 * i + 2] + add.z;
    state[4 * i + 3] = decay * state[4 * i + 3] + add.w;
  }
}

}  // namespace attune::cuda::chunk_wgmma

#endif
