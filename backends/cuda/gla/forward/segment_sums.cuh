// What goes ahead of a walk in segments: a launch that makes all operands and what each segment adds to the
// state, one that makes of these what each starts from.
#pragma once

#include "cuda/gla/forward/producers.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::gla::forward {

/// The widest tile is that of walks in segments: narrow ones gain nothing by them.
using SumShape = WalkShape<Constant<ChunkGlaConfig{.tile_k = kTileOfSegments}>>;

#if ATTUNE_SM90A_CODE

/// The work of the state's warpgroup.
template <class T>
class StateSums {
 public:
  __device__ __forceinline__ StateSums(const WalkParams& p, const SegmentSums& sums,
                                       WalkShared<SumShape>& shared)
      : p_(p), sums_(sums), shared_(shared) {}

  /// Leaves the initial state where the first segment starts, and each sum where the next one does. Nobody
  /// starts from the last one's.
  __device__ __forceinline__ void run() {
    for_each_item<SumShape>(p_, main_walk(p_), [&](const WalkItem& item) {
      const bool is_last = item.segment == p_.segments - 1;
      if (item.segment == 0) {
        load_state<SumShape>(state_, p_, item, me_, first_value<SumShape>(item));
      } else {
        state_.clear();
      }
#pragma unroll
      for (float& of : total_) of = 1.0F;
#pragma unroll 1
      for (int next = item.segment == 0 ? 0 : 1; next < 2;
           ++next) {  // one place that stores states
        const int count = next == 0 ? 0 : item.count;
        for (int step = 0; step < count; ++step) add_chunk();
        if (next == 0 || !is_last) store_start(item, next);
      }
      if (!is_last && item.tile == 0) store_total(item);
    });
  }

 private:
  using State = StateTile<SumShape::kTileK>;
  static constexpr int kKeysOfThread = SumShape::kTileK / kWarpgroupSize;

  __device__ __forceinline__ void add_chunk() {
    ValueFragments values;
    shared_.q_ring.wait_full(chunk_at_);
    const float* const decays = shared_.decays[chunk_at_.stage];
    state_.scale_magnitudes(decays + me_.column, 0, SumShape::kTileK);
#pragma unroll
    for (int i = 0; i < kKeysOfThread; ++i) {
      total_[i] *= fabsf(decays[me_.thread + i * kWarpgroupSize]);
    }
    shared_.q_ring.release(chunk_at_.stage);
    state_.pin();
    shared_.v_ring.wait_full(value_at_);
    take_values<T>(values, shared_address(shared_.v[value_at_.stage]), me_);
    shared_.k_ring.wait_full(chunk_at_);
    wgmma_fence();
    queue_state_update<Operand>(state_, values, shared_address(shared_.k[chunk_at_.stage]));
    wgmma_commit();
    warp_arrive(&shared_.output_full[value_at_.stage]);
    finish_chunk(state_, values, shared_, chunk_at_, value_at_);
  }
  /// Of the item's segment, or of the next one.
  __device__ __forceinline__ void store_start(const WalkItem& item, int next) {
    const StateView to = state_of(sums_.starts_view(p_.extents), at_start(p_, item).n + next);
    store_state<SumShape>(state_, p_, item, me_, first_value<SumShape>(item), to);
  }
  __device__ __forceinline__ void store_total(const WalkItem& item) const {
    const std::int64_t index = std::int64_t{at_start(p_, item).n} * p_.extents.heads + item.head;
    float* const to = sums_.decays + index * SumShape::kTileK + me_.thread;
#pragma unroll
    for (int i = 0; i < kKeysOfThread; ++i) to[i * kWarpgroupSize] = total_[i];
  }

  const WalkParams& p_;
  const SegmentSums& sums_;
  WalkShared<SumShape>& shared_;
  const Lane me_;
  State state_;
  float total_[kKeysOfThread];  // decays of a thread's channels, over a segment
  RingPosition<SumShape::kStages> chunk_at_;
  RingPosition<SumShape::kValueStages> value_at_;
};

#endif

template <class T>
__global__ __launch_bounds__(SumShape::kThreads,
                             1) void sum_segments(const __grid_constant__ WalkParams p,
                                                  const __grid_constant__ GlaParams operands,
                                                  const __grid_constant__ WalkProgress progress,
                                                  const __grid_constant__ SegmentSums sums) {
#if ATTUNE_SM90A_CODE
  using Shape = SumShape;
  auto& shared = *reinterpret_cast<WalkShared<Shape>*>(shared_memory);
  init_rings(shared);
  take_over_from_previous_launch();
  with_roles<Shape>(
      [&] {
        ChunkOperands<T, OperandsShared<Shape::kTileK>>(operands, shared.operands).make_all();
      },
      [&](int warp) { produce<T, false>(warp, p, operands, progress, shared); },
      [&] { StateSums<T>(p, sums, shared).run(); });
#endif
}

/// Makes what a segment starts from of what each before it adds. Blocks (elements of a head's state;
/// head and sequence).
inline __global__ void join_sums(const __grid_constant__ SegmentSums sums,
                                 const __grid_constant__ chunk_wgmma::WalkExtents extents,
                                 int segments) {
  constexpr int kAtOnce = 8;  // segments whose loads are under way
  take_over_from_previous_launch();
  const auto element = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int key = element / sums.row;
  if (key >= extents.K) return;
  const auto sequence =
      static_cast<std::int64_t>(blockIdx.y / static_cast<unsigned>(extents.heads));
  const std::int64_t head = blockIdx.y % static_cast<unsigned>(extents.heads);
  const StateView starts = sums.starts_view(extents);
  const std::int64_t place = sequence * segments;
  float* const first = starts.data + place * starts.sequence + head * starts.head + element;
  const float* const decays = sums.decays + (place * extents.heads + head) * kTileOfSegments + key;
  const std::int64_t step = extents.heads * kTileOfSegments;
  float x = first[starts.sequence];
  for (int i = 1; i + 1 < segments; i += kAtOnce) {
    float added[kAtOnce];
    float decay[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int of = min(i + n, segments - 2);
      added[n] = first[(of + 1) * starts.sequence];
      decay[n] = decays[of * step];
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      if (i + n + 1 >= segments) break;
      x = fmaf(x, decay[n], added[n]);
      first[(i + n + 1) * starts.sequence] = x;
    }
  }
}

template <class T>
void launch_sums(const WalkParams& params, const GlaParams& operands, const WalkProgress& progress,
                 const SegmentSums& sums, cudaStream_t stream) {
  constexpr unsigned kThreads = 256;
  launch<sum_segments<T>>({.grid = walk_grid(params, kValueTile, main_walk(params), 1),
                           .block = SumShape::kThreads,
                           .shared_bytes = sizeof(WalkShared<SumShape>),
                           .overlaps_previous = true},
                          stream, params, operands, progress, sums);
  if (params.segments == 2) return;  // the second starts from the first's sum
  const auto elements = static_cast<unsigned>(params.extents.K * sums.row);
  launch<join_sums>(
      {.grid = dim3((elements + kThreads - 1) / kThreads,
                    static_cast<unsigned>(params.extents.sequences * params.extents.heads)),
       .block = dim3(kThreads),
       .overlaps_previous = true},
      stream, sums, params.extents, params.segments);
}

}  // namespace attune::cuda::gla::forward
