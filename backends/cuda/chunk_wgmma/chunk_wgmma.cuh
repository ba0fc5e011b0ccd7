// The chunked walk on wgmma and TMA (sm_90a): one block walks one value tile of one head of a
// segment, chunk by chunk, in specialised warpgroups that meet at barriers in shared memory.
//
//   producers  one warp each loads q and k, loads v, stores o, makes decays
//   scores     P = mask(Q K^T) o decays
//   states     64 value channels each, S^T in registers from the first chunk to the last:
//                O^T = (S^T Q^T) o decays + V^T P^T
//                S^T = decay S^T + (V o decays)^T K
//
// Outputs go out from the stages that v came in. Blocks take items in turn, and producers run
// ahead across items.
#pragma once

#include "cuda/chunk_wgmma/scores.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/wgmma_walk/state_memory.cuh"

namespace attune::cuda::chunk_wgmma {

#if ATTUNE_SM90A_CODE

/// The state at the start of a segment: the initial one, and what the segments before it add.
template <class Shape>
__device__ __forceinline__ void start_state(StateTile<Shape::kTileK>& state, const WalkParams& p,
                                            const WalkItem& item, const Lane& me, int warpgroup) {
  const int first_v = item.tile * Shape::kTileV + warpgroup * kStateRows;
  const auto scratch = [&](int subsegment) {
    return scratch_state<Shape>(p, item, subsegment, warpgroup * kWarpgroupSize + me.thread);
  };
  const bool is_whole = Shape::kIsInParts && item.segments == 1;
  if (item.segment == 0 && (is_whole || !p.scratch.saves_initial)) {
    load_state<Shape>(state, p, item, me, first_v);
    return;
  }
  dependency_wait();
  state.clear();
  const bool has_initial = item.segment == 0 || p.scratch.sums_all;
  const float* const decays = scratch_decays<Shape>(p, item);
#pragma unroll 1
  for (int before = has_initial ? -1 : 0; before < item.subsegment; ++before) {
    const bool is_initial = before < 0;
    add_scratch<Shape::kTileK, Shape::kTileV>(
        state, is_initial ? 0.0F : __ldcg(decays + before),
        scratch(is_initial ? last_subsegment<Shape>(p, item) : before));
  }
}

/// What the state before a chunk is multiplied by in its outputs, of a lane's tokens.
struct OutputFactors {
  float2 of[kChunkTokens / 8];

  __device__ __forceinline__ void load(const float* from_start, const Lane& me) {
#pragma unroll
    for (int n = 0; n < kChunkTokens / 8; ++n) {
      of[n] = *reinterpret_cast<const float2*>(from_start + 8 * n + me.column);
    }
  }
  __device__ __forceinline__ void scale(float (&o)[kChunkProduct]) const {
#pragma unroll
    for (int i = 0; i < kChunkProduct; ++i) o[i] *= i % 2 == 0 ? of[i / 4].x : of[i / 4].y;
  }
};

/// The work of one state warpgroup. While products are under way, nothing but sums that are done is
/// written to registers, where the state leaves room for that.
template <class T, class Shape>
class StateWalk {
 public:
  __device__ __forceinline__ StateWalk(const WalkParams& p, WalkShared<Shape>& shared,
                                       int warpgroup)
      : p_(p), shared_(shared), warpgroup_(warpgroup) {}

  __device__ __forceinline__ void run() {
    for_each_item<Shape>(p_, main_walk(p_), [&](const WalkItem& item) {
      start_state<Shape>(state_, p_, item, Lane::anew(), warpgroup_);
      if (kFetch == ValueFetch::kAhead && item.count > 0) {
        fetch_values(values_, value_at_, decay_at_);
      }
      for (int step = 0; step < item.count; ++step) walk_chunk(item, step);
      if constexpr (Shape::kBatch == WalkBatch::kSnapshots || Shape::kIsInParts) {
        if (p_.final.data == nullptr) return;  // else it is made again: kept, it takes registers
        store_final(item_at<Shape>(p_, main_walk(p_), item.index));
      } else {
        store_final(item);
      }
    });
  }

 private:
  static constexpr ValueFetch kFetch = Shape::kFetch;

  __device__ __forceinline__ void store_final(const WalkItem& item) {
    const int segments = Shape::kIsInParts ? item.segments : p_.segments;
    if (item.segment == segments - 1) store(item, state_of(p_.final, item.n));
  }
  /// Stores the state in one of [H, K, V], where there is one.
  __device__ __forceinline__ void store(const WalkItem& item, const StateView& to) {
    if (to.data == nullptr) return;
    store_state<Shape>(state_, p_, item, Lane::anew(),
                       item.tile * Shape::kTileV + warpgroup_ * kStateRows, to);
  }

  /// Stores the state behind a chunk of an item where it is kept as a snapshot. Whether it may be
  /// is asked first: to find the item again waits for memory.
  __device__ __forceinline__ void store_snapshot(unsigned index, int first, int step) {
    const int every = static_cast<int>(p_.snapshots.every) / kChunkTokens;
    if ((first + step + 1) % every != 0) return;
    const WalkItem item = item_at<Shape>(p_, main_walk(p_), index);
    const int tokens = (item.first + step + 1) * kChunkTokens;
    if (tokens <= item.length) store(item, snapshot_of(p_.snapshots, item.n, tokens));
  }

  __device__ __forceinline__ void walk_chunk(const WalkItem& item, int step) {
    constexpr int kOperandSteps = StateOperand::steps_at_once(Shape::kTileK);
    const auto value = value_at_;
    const auto decay = decay_at_;
    value_at_.advance();
    decay_at_.advance();
    const ChunkDecays& decays = shared_.decays[decay.stage];
    StateOperand operand;
    OutputFactors factors;
    if (kFetch == ValueFetch::kBehind) shared_.decay_ring.wait_full(decay);
    shared_.q_ring.wait_full(chunk_at_);
    queue_state_read<T>(o_, state_, operand, shared_address(shared_.q[chunk_at_.stage]), [&] {
      if (kFetch == ValueFetch::kBeside) {
        fetch_values(values_, value, decay);
        factors.load(decays.from_start, me_);
      }
      return decays.total;
    });
    if (kFetch == ValueFetch::kBehind) fetch_values(values_, value, decay);
    shared_.k_ring.wait_full(chunk_at_);
    wgmma_fence();
    queue_state_update<T>(state_, scaled_, shared_address(shared_.k[chunk_at_.stage]));
    wgmma_commit();

    wgmma_wait<1>();
    wgmma_pin(o_);
    operand.hold<kOperandSteps>();
    shared_.q_ring.release(chunk_at_.stage);
    if (kFetch != ValueFetch::kBeside) factors.load(decays.from_start, me_);
    factors.scale(o_);
    shared_.decay_ring.release(decay.stage);
    if (kFetch != ValueFetch::kAhead) values_.load(panel_of(value.stage), me_);
    shared_.score_ring.wait_full(score_at_);
    wgmma_pin(o_);
    wgmma_fence();
    queue_scored_values<T>(o_, values_, shared_.scores[score_at_.stage]);
    const bool has_next = step + 1 < item.count;
    if constexpr (kFetch == ValueFetch::kAhead) {
      wgmma_wait<1>();
      state_.pin();
      scaled_.hold();
      shared_.k_ring.release(chunk_at_.stage);
      ValueFragments ahead;  // of the next chunk, while this one's are still read
      if (has_next) fetch_values(ahead, value_at_, decay_at_);
    }

    wgmma_wait<0>();
    wgmma_pin(o_);
    state_.pin();
    values_.hold();
    scaled_.hold();
    if (kFetch != ValueFetch::kAhead) shared_.k_ring.release(chunk_at_.stage);
    shared_.score_ring.release(score_at_.stage);
    store_outputs<T>(o_, panel_of(value.stage), me_);
    warp_arrive(&shared_.output_full[value.stage]);
    // Loaded again: values that are carried over get the registers of the product under way.
    if (kFetch == ValueFetch::kAhead && has_next) values_.load(panel_of(value_at_.stage), me_);
    chunk_at_.advance();
    score_at_.advance();
    if constexpr (Shape::kBatch == WalkBatch::kSnapshots) {  // the fewest registers are in use
      store_snapshot(item.index, item.first, step);
    }
  }

  __device__ __forceinline__ std::uint32_t panel_of(int value_stage) const {
    return shared_address(shared_.v[value_stage]) + warpgroup_ * kPanelBytes;
  }

  using ValuePosition = RingPosition<Shape::kValueStages>;
  using DecayPosition = RingPosition<Shape::kDecayStages>;

  /// The values of a chunk, and times their decays, for which it waits.
  __device__ __forceinline__ void fetch_values(ValueFragments& values, const ValuePosition& value,
                                               const DecayPosition& decay) {
    shared_.v_ring.wait_full(value);
    values.load(panel_of(value.stage), me_);
    shared_.decay_ring.wait_full(decay);
    scaled_ = values;
    scaled_.template scale<T>(shared_.decays[decay.stage].to_end, me_);
  }

  const WalkParams& p_;
  WalkShared<Shape>& shared_;
  const int warpgroup_;
  const Lane me_;
  StateTile<Shape::kTileK> state_;
  float o_[kChunkProduct];
  ValueFragments values_;
  ValueFragments scaled_;
  RingPosition<Shape::kStages> chunk_at_;
  RingPosition<Shape::kValueStages> value_at_;
  RingPosition<Shape::kDecayStages> decay_at_;
  RingPosition<Shape::kScoreStages> score_at_;
};

template <class Shape>
__device__ __forceinline__ void init_rings(WalkShared<Shape>& shared) {
  constexpr int kWarps = kWarpgroupSize / kWarpSize;
  constexpr int kStateWarps = kWarps * Shape::kStateWarpgroups;
  if (threadIdx.x == 0) {
    shared.q_ring.init_copied(1, kStateWarps + kWarps);
    shared.k_ring.init_copied(1, kStateWarps + kWarps);
    shared.v_ring.init_copied(1, 1);
    for (SharedBarrier& full : shared.output_full) {
      barrier_init(&full, kStateWarps * kWarpArrivals);
    }
    shared.decay_ring.init_published(1, kStateWarps + kWarps);
    shared.score_ring.init_published(kWarps, kStateWarps);
    barrier_init(&shared.k_landed, 1);
    barrier_init(&shared.v_landed, 1);
    barrier_init_fence();
  }
  __syncthreads();  // all barriers are made before any is used
}

template <class Shape>
__device__ __forceinline__ void load_queries_and_keys(const WalkParams& p,
                                                      WalkShared<Shape>& shared) {
  using Loader = TileLoader<Shape::kPanelsK, Shape::kStages, Shape::kChunksUnderWay>;
  Loader q(p, p.q, shared.q_ring, shared.q[0], nullptr);
  Loader k(p, p.k, shared.k_ring, shared.k[0], &shared.k_landed);
  for_each_chunk<Shape>(p, main_walk(p), [&](const WalkItem& item, int row) {
    q.load(item, row, 0);
    k.load(item, row, 0);
  });
}

template <class Shape>
__device__ __forceinline__ void load_values(const WalkParams& p, WalkShared<Shape>& shared) {
  TileLoader<Shape::kPanelsV, Shape::kValueStages, Shape::kChunksUnderWay> v(
      p, p.v, shared.v_ring, shared.v[0], &shared.v_landed);
  for_each_chunk<Shape>(p, main_walk(p), [&](const WalkItem& item, int row) {
    v.load(item, row, item.tile * Shape::kTileV);
  });
}

template <class T, class Shape>
__device__ __forceinline__ void produce(const WalkParams& p, WalkShared<Shape>& shared) {
  switch (warp_uniform(static_cast<int>(threadIdx.x) / kWarpSize)) {
    case 0:
      return load_queries_and_keys(p, shared);
    case 1:
      return load_values(p, shared);
    case 2:
      return store_tiles<T>(p, shared);
    case 3:
      return make_decays<T, Shape>(p, main_walk(p), shared.decay_ring, shared.decays);
  }
}

#endif

template <class T, class Config, WalkBatch kBatch>
__global__ __launch_bounds__(WalkShape<Config>::kThreads,
                             1) void chunk_wgmma(const __grid_constant__ WalkParams p) {
#if ATTUNE_SM90A_CODE
  using Shape = WalkShape<Config, kBatch>;
  static_assert(sizeof(WalkShared<Shape>) <= kMostSharedBytes);
  auto& shared = *reinterpret_cast<WalkShared<Shape>*>(shared_memory);
  init_rings(shared);
  // Else before the scratch of the launch before is read, if that is what this is behind.
  const bool reads_none = p.segments == 1 || p.scratch.sums_all;
  if (!Shape::kIsInParts && reads_none && !p.runs_beside_previous) dependency_wait();
  dependents_launch();
  clear_rows_behind<T>(p.sequences, p.extents.sequences, p.o_rows, p.extents.heads, p.extents.V,
                       static_cast<int>(threadIdx.x), Shape::kThreads);
  const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x) / kWarpgroupSize);
  constexpr int kFirstOfStates = 1 + Shape::kScoreWarpgroups;
  if (warpgroup == 0) {
    registers_shrink<Shape::kRegisters.producer>();
    produce<T>(p, shared);
  } else if (warpgroup < kFirstOfStates) {
    registers_shrink<Shape::kRegisters.scores>();
    make_scores<T>(p, shared, warpgroup - 1);
  } else {
    registers_grow<Shape::kRegisters.state>();
    StateWalk<T, Shape>(p, shared, warpgroup - kFirstOfStates).run();
  }
  // The launch behind this waits for this one alone, of which no block may have needed the first.
  if (Shape::kIsInParts || p.runs_beside_previous) dependency_wait();
#endif
}

template <class T>
void launch_walk(const ChunkWgmmaConfig& config, const WalkParams& params, cudaStream_t stream) {
  ChunkWgmmaConfig instance = config;
  instance.stages = ChunkWgmmaConfig::most_stages(config.tile_k);
  with_instance(instance, [&]<class Config>() {
    if constexpr (Config::kValue.stages == ChunkWgmmaConfig::most_stages(Config::kValue.tile_k)) {
      using Shape = WalkShape<Config>;
      with_value_of<kWalkBatches>(walk_batch(params), [&]<WalkBatch kBatch>() {
        launch<chunk_wgmma<T, Config, kBatch>>(
            {.grid = walk_grid(params, Shape::kTileV, main_walk(params), 1),
             .block = Shape::kThreads,
             .shared_bytes = sizeof(WalkShared<Shape>),
             .overlaps_previous = true},
            stream, params);
      });
    }
  });
}

}  // namespace attune::cuda::chunk_wgmma
