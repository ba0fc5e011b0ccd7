// What state warpgroups do (chunk_wgmma.cuh): outputs of a chunk, from the state before it and from
// scores, and the state behind it.
#pragma once

#include "cuda/chunk_wgmma/scores.cuh"
#include "cuda/tiles/ptx.cuh"
#include "cuda/wgmma_walk/state_memory.cuh"

#if ATTUNE_SM90A_CODE

namespace attune::cuda::chunk_wgmma {

/// The state at the start of a segment: the initial one, and what the segments before it add.
template <class Shape>
__device__ __forceinline__ void start_state(StateTile<Shape::kTileK>& state, const WalkParams& p,
                                            const WalkItem& item, const Lane& me, int warpgroup) {
  const int first_v = item.tile * Shape::kTileV + warpgroup * kStateRows;
  const auto scratch = [&](int subsegment) {
    return scratch_state<Shape>(p, item, subsegment, warpgroup, me.thread);
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
    add_scratch(state, is_initial ? 0.0F : __ldcg(decays + before),
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
/// written to registers, where the state leaves room for that. One of two states of 256 channels
/// leaves room for one sum at a time: outputs are done before the state goes on.
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
      for (int step = 0; step < item.count; ++step) {
        if constexpr (kFetch == ValueFetch::kInTurn) {
          walk_chunk_in_turn();
        } else {
          walk_chunk(item, step);
        }
        chunk_at_.advance();
        score_at_.advance();
        if constexpr (Shape::kBatch == WalkBatch::kSnapshots) {  // the fewest registers are in use
          store_snapshot(item.index, item.first, step);
        }
      }
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
  static constexpr int kOperandSteps = StateOperand::steps_at_once(Shape::kTileK);

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
  }

  /// The same with products one after the other, of which the last reads values where they lie.
  __device__ __forceinline__ void walk_chunk_in_turn() {
    const auto value = value_at_;
    const auto decay = decay_at_;
    value_at_.advance();
    decay_at_.advance();
    const ChunkDecays& decays = shared_.decays[decay.stage];
    shared_.decay_ring.wait_full(decay);
    shared_.q_ring.wait_full(chunk_at_);
    read_state<T>(o_, state_, shared_address(shared_.q[chunk_at_.stage]), decays.total);
    shared_.q_ring.release(chunk_at_.stage);
    OutputFactors factors;
    factors.load(decays.from_start, me_);
    factors.scale(o_);

    shared_.v_ring.wait_full(value);
    shared_.score_ring.wait_full(score_at_);
    wgmma_pin(o_);
    wgmma_fence();
    queue_scored_values<T>(o_, panel_of(value.stage), shared_.scores[score_at_.stage]);
    scaled_.load(panel_of(value.stage), me_);
    scaled_.template scale<T>(decays.to_end, me_);
    shared_.decay_ring.release(decay.stage);
    wgmma_wait<0>();
    wgmma_pin(o_);
    shared_.score_ring.release(score_at_.stage);

    shared_.k_ring.wait_full(chunk_at_);
    wgmma_fence();
    queue_state_update<T>(state_, scaled_, shared_address(shared_.k[chunk_at_.stage]));
    wgmma_commit();
    warpgroup_sync();  // outputs go where other warps have read values
    store_outputs<T>(o_, panel_of(value.stage), me_);
    warp_arrive(&shared_.output_full[value.stage]);
    wgmma_wait<0>();
    state_.pin();
    scaled_.hold();
    shared_.k_ring.release(chunk_at_.stage);
  }

  __device__ __forceinline__ void warpgroup_sync() const {
    if (warpgroup_ == 0) {
      named_barrier_sync<1>(kWarpgroupSize);
    } else {
      named_barrier_sync<2>(kWarpgroupSize);
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

}  // namespace attune::cuda::chunk_wgmma

#endif
