// The state of a block's 64 value channels, in the registers of a warpgroup: chunk by chunk,
//
//   S^T = S^T decays,  O^T = S^T Q'^T + V^T P^T,  S^T = S^T + V^T K'
#pragma once

#include "cuda/gla/forward/courier.cuh"
#include "cuda/tiles/f16_pairs.cuh"
#include "cuda/wgmma_walk/state_memory.cuh"

namespace attune::cuda::gla::forward {

using chunk_wgmma::WalkBatch;

/// A block's sizes, from its config.
template <class Config>
struct WalkShape {
  static constexpr ChunkGlaConfig kConfig = Config::kValue;
  static constexpr WalkBatch kBatch = WalkBatch::kAny;
  static constexpr bool kIsInParts = false;
  static constexpr bool kIsPool = false;
  static constexpr int kTileK = kConfig.tile_k;
  static constexpr int kTileV = kValueTile;
  static constexpr int kPanelsK = kTileK / kPanelChannels;
  static constexpr int kPanelsV = 1;
  static constexpr int kThreads = kBlockThreads + 2 * kWarpgroupSize;

  /// As many as shared memory holds.
  static constexpr int kStages = kTileK == 256 ? 2 : 3;
  /// A tile of v is used longer: the output goes out from where it was.
  static constexpr int kValueStages = kStages + 1;
  /// With those of both warpgroups of makers as many as a multiprocessor has.
  static constexpr int kMakerRegisters = 120;
  static constexpr int kProducerRegisters = 32;
  static constexpr int kStateRegisters = 240;
};

template <class Shape_>
struct WalkShared {
  using Shape = Shape_;
  static constexpr int kTileBytes = Shape::kPanelsK * kPanelBytes;
  std::byte q[Shape::kStages][kTileBytes];
  std::byte k[Shape::kStages][kTileBytes];
  std::byte v[Shape::kValueStages][kPanelBytes];  // and then o
  std::byte scores[Shape::kStages][kPanelBytes];
  OperandsShared<Shape::kTileK> operands;
  alignas(16) float decays[Shape::kStages][Shape::kTileK];
  Ring<Shape::kStages> q_ring;  // and of decays
  Ring<Shape::kStages> k_ring;  // and of scores
  Ring<Shape::kValueStages> v_ring;
  SharedBarrier output_full[Shape::kValueStages];  // v has been used and o is in its place
  SharedBarrier v_landed;
};

#if ATTUNE_SM90A_CODE

using chunk_wgmma::kStateRows;
using chunk_wgmma::kWgmmaDepth;
using chunk_wgmma::Lane;
using chunk_wgmma::StateOperand;
using chunk_wgmma::StateTile;
using chunk_wgmma::ValueFragments;

/// Queues O^T = S^T Q'^T for a chunk and commits it. Panels of the state are decayed before the
/// products see them, or after that where their decays are negative. `decays`: of a lane's first column.
template <int kTileK>
__device__ __forceinline__ void queue_decayed_read(float (&o)[kChunkTokens / 2],
                                                   StateTile<kTileK>& state, StateOperand& operand,
                                                   std::uint32_t q_tile, const float* decays,
                                                   int lane) {
  constexpr int kSteps = kTileK / kWgmmaDepth;
  constexpr int kStepsAtOnce = StateOperand::steps_at_once(kTileK);
  constexpr int kStepsOfPanel = kPanelChannels / kWgmmaDepth;
  static_assert(kSteps % kStepsAtOnce == 0 && kStepsAtOnce % kStepsOfPanel == 0);
  const std::uint64_t queries = matrix_descriptor(q_tile);
  const bool leads_panel = lane < kTileK / kPanelChannels;
  const unsigned strong = __ballot_sync(
      kFullWarp,
      leads_panel && __float_as_int(decays[leads_panel ? lane * kPanelChannels : 0]) < 0);
  const auto decay = [&](int first, unsigned panels) {
#pragma unroll
    for (int step = first; step < first + kStepsAtOnce; step += kStepsOfPanel) {
      if ((panels >> step / kStepsOfPanel & 1U) == 0) continue;
      state.scale_magnitudes(&decays[step * kWgmmaDepth], step * kWgmmaDepth, kPanelChannels);
    }
  };
#pragma unroll
  for (int first = 0; first < kSteps; first += kStepsAtOnce) {
    if (first > 0) {
      wgmma_wait<0>();
      wgmma_pin(o);
      operand.hold<kStepsAtOnce>();
    }
    if (strong == 0) {
      decay(first, ~0U);
    } else {
      decay(first, ~strong);
    }
    operand.round<Operand, kStepsAtOnce>(state, first);
    if (strong != 0) decay(first, strong);
    state.pin();
    wgmma_fence();
    chunk_wgmma::queue_state_products<Operand, kStepsAtOnce>(o, operand, queries, first);
  }
}

/// A chunk's values, from a panel.
template <class T>
__device__ __forceinline__ void take_values(ValueFragments& values, std::uint32_t panel,
                                            const Lane& me) {
  values.load(panel, me);
  if constexpr (std::is_same_v<T, __half>) {
    for (auto& step : values.step) widen(step);
  }
}

template <class Shape>
__device__ __forceinline__ int first_value(const WalkItem& item) {
  return item.tile * Shape::kTileV;
}
/// The place of an item's start among those of all segments, one sequence's behind another's.
__device__ __forceinline__ WalkItem at_start(const WalkParams& p, WalkItem item) {
  item.n = item.n * p.segments + item.segment;
  return item;
}

/// Waits for a chunk's update of the state, hands its keys back and goes on to the next.
template <class Shape>
__device__ __forceinline__ void finish_chunk(StateTile<Shape::kTileK>& state,
                                             const ValueFragments& values,
                                             WalkShared<Shape>& shared,
                                             RingPosition<Shape::kStages>& chunk_at,
                                             RingPosition<Shape::kValueStages>& value_at) {
  wgmma_wait<0>();
  state.pin();
  values.hold();
  shared.k_ring.release(chunk_at.stage);
  chunk_at.advance();
  value_at.advance();
}

/// The work of the state's warpgroup: outputs and final states. Initial states are those of segments.
template <class T, class Shape>
class StateWalk {
 public:
  __device__ __forceinline__ StateWalk(const WalkParams& p, WalkShared<Shape>& shared)
      : p_(p), shared_(shared) {}

  __device__ __forceinline__ void run() {
    for_each_item<Shape>(p_, main_walk(p_), [&](const WalkItem& item) {
      load_state<Shape>(state_, p_, at_start(p_, item), Lane::anew(), first_value<Shape>(item));
      for (int step = 0; step < item.count; ++step) walk_chunk();
      const StateView to = state_of(p_.final, item.n);
      if (to.data != nullptr && item.segment == p_.segments - 1) {
        store_state<Shape>(state_, p_, item, Lane::anew(), first_value<Shape>(item), to);
      }
    });
  }

 private:
  __device__ __forceinline__ void walk_chunk() {
    constexpr int kStepsAtOnce = StateOperand::steps_at_once(Shape::kTileK);
    const std::uint32_t panel = shared_address(shared_.v[value_at_.stage]);
    StateOperand operand;
    ValueFragments values;
    shared_.q_ring.wait_full(chunk_at_);
    queue_decayed_read(o_, state_, operand, shared_address(shared_.q[chunk_at_.stage]),
                       shared_.decays[chunk_at_.stage] + me_.column, me_.lane);
    shared_.v_ring.wait_full(value_at_);
    take_values<T>(values, panel, me_);
    shared_.k_ring.wait_full(chunk_at_);
    wgmma_fence();
    chunk_wgmma::queue_scored_values<Operand>(o_, values, shared_.scores[chunk_at_.stage]);
    queue_state_update<Operand>(state_, values, shared_address(shared_.k[chunk_at_.stage]));
    wgmma_commit();

    wgmma_wait<1>();
    wgmma_pin(o_);
    operand.template hold<kStepsAtOnce>();
    shared_.q_ring.release(chunk_at_.stage);
    chunk_wgmma::store_outputs<T>(o_, panel, me_);
    warp_arrive(&shared_.output_full[value_at_.stage]);
    finish_chunk(state_, values, shared_, chunk_at_, value_at_);
  }

  const WalkParams& p_;
  WalkShared<Shape>& shared_;
  const Lane me_;
  StateTile<Shape::kTileK> state_;
  float o_[kChunkTokens / 2];
  RingPosition<Shape::kStages> chunk_at_;
  RingPosition<Shape::kValueStages> value_at_;
};

#endif

}  // namespace attune::cuda::gla::forward
