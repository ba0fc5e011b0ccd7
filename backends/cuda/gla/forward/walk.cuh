// The walk: one block walks 64 or 128 value channels of a head of a sequence, chunk by chunk.
//
//   producers  one warp each loads operands, loads v, stores o
//   states     64 value channels each, S^T in registers from the first chunk to the last:
//                O^T = S^T Q'^T + V^T P^T
//                S^T = S^T decays + V^T K'
//
// Outputs go out from the stages that v came in.
#pragma once

#include "cuda/chunks/chunk_walk.cuh"
#include "cuda/gla/forward/walk.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/wgmma_walk/state.cuh"

namespace attune::cuda::gla::forward {

using chunk_wgmma::main_walk;
using chunk_wgmma::WalkBatch;
using chunk_wgmma::WalkParams;

/// A block's sizes, from its config.
template <class Config>
struct WalkShape {
  static constexpr ChunkGlaConfig kConfig = Config::kValue;
  static constexpr WalkBatch kBatch = WalkBatch::kAny;
  static constexpr bool kIsInParts = false;
  static constexpr bool kIsPool = false;
  static constexpr int kTileK = kConfig.tile_k;
  static constexpr int kTileV = kConfig.tile_v;
  static constexpr int kPanelsK = kTileK / kPanelChannels;
  static constexpr int kPanelsV = kTileV / kPanelChannels;
  static constexpr int kStateWarpgroups = kPanelsV;
  static constexpr int kThreads = kWarpgroupSize * (1 + kStateWarpgroups);

  /// As many as shared memory holds.
  static constexpr int kStages = kTileK == 256 ? 2 : kTileV == 128 ? 3 : 4;
  /// A tile of v is used longer: the output goes out from where it was.
  static constexpr int kValueStages = kStages + 1;
  static constexpr int kProducerRegisters = 40;  // where two warpgroups have states
  static constexpr int kStateRegisters = 232;
};

template <class Shape_>
struct WalkShared {
  using Shape = Shape_;
  static constexpr int kTileBytes = Shape::kPanelsK * kPanelBytes;
  std::byte q[Shape::kStages][kTileBytes];
  std::byte k[Shape::kStages][kTileBytes];
  std::byte v[Shape::kValueStages][Shape::kPanelsV * kPanelBytes];  // and then o
  std::byte scores[Shape::kStages][kPanelBytes];
  alignas(16) float decays[Shape::kStages][Shape::kTileK];
  Ring<Shape::kStages> q_ring;  // and of decays
  Ring<Shape::kStages> k_ring;  // and of scores
  Ring<Shape::kValueStages> v_ring;
  SharedBarrier output_full[Shape::kValueStages];  // v has been used and o is in its place
  SharedBarrier v_landed;
};

#if ATTUNE_SM90A_CODE

using chunk_wgmma::kDepthBytes;
using chunk_wgmma::kStateRows;
using chunk_wgmma::kWgmmaDepth;
using chunk_wgmma::Lane;
using chunk_wgmma::shared_memory;
using chunk_wgmma::StateOperand;
using chunk_wgmma::StateTile;
using chunk_wgmma::TileLoader;
using chunk_wgmma::ValueFragments;
using chunk_wgmma::WalkItem;

/// The work of one state warpgroup.
template <class T, class Shape>
class StateWalk {
 public:
  __device__ __forceinline__ StateWalk(const WalkParams& p, WalkShared<Shape>& shared,
                                       int warpgroup)
      : p_(p), shared_(shared), warpgroup_(warpgroup) {}

  __device__ __forceinline__ void run() {
    for_each_item<Shape>(p_, main_walk(p_), [&](const WalkItem& item) {
      load_state<Shape>(state_, p_, item, Lane::anew(), first_value(item));
      for (int step = 0; step < item.count; ++step) walk_chunk();
      const StateView to = state_of(p_.final, item.n);
      if (to.data != nullptr) {
        store_state<Shape>(state_, p_, item, Lane::anew(), first_value(item), to);
      }
    });
  }

 private:
  __device__ __forceinline__ int first_value(const WalkItem& item) const {
    return item.tile * Shape::kTileV + warpgroup_ * kStateRows;
  }

  __device__ __forceinline__ void walk_chunk() {
    constexpr int kSteps = Shape::kTileK / kWgmmaDepth;
    constexpr int kStepsAtOnce = StateOperand::steps_at_once(Shape::kTileK);
    constexpr bool kInOneRound = kSteps == kStepsAtOnce;
    const std::uint32_t panel =
        shared_address(shared_.v[value_at_.stage]) + warpgroup_ * kPanelBytes;
    StateOperand operand;
    ValueFragments values;
    shared_.q_ring.wait_full(chunk_at_);
    const auto load_values = [&] {
      shared_.v_ring.wait_full(value_at_);
      values.load(panel, me_);
    };
    queue_state_read<T>(o_, state_, operand, shared_address(shared_.q[chunk_at_.stage]), [&] {
      if (!kInOneRound) load_values();
      return shared_.decays[chunk_at_.stage] + me_.column;
    });
    if (kInOneRound) load_values();
    shared_.k_ring.wait_full(chunk_at_);
    wgmma_fence();
    add_scored_values(values);
    queue_state_update<T>(state_, values, shared_address(shared_.k[chunk_at_.stage]));
    wgmma_commit();

    wgmma_wait<1>();
    wgmma_pin(o_);
    operand.template hold<kStepsAtOnce>();
    shared_.q_ring.release(chunk_at_.stage);
    chunk_wgmma::store_outputs<T>(o_, panel, me_);
    warp_arrive(&shared_.output_full[value_at_.stage]);
    wgmma_wait<0>();
    state_.pin();
    values.hold();
    shared_.k_ring.release(chunk_at_.stage);
    chunk_at_.advance();
    value_at_.advance();
  }

  /// O^T += V^T P^T
  __device__ __forceinline__ void add_scored_values(const ValueFragments& values) {
    const std::uint64_t scores = matrix_descriptor(shared_address(shared_.scores[chunk_at_.stage]));
#pragma unroll
    for (int s = 0; s < ValueFragments::kSteps; ++s) {
      wgmma_n64<T, Major::kK>(o_, values.step[s], descriptor_further(scores, s * kDepthBytes),
                              true);
    }
    wgmma_commit();
  }

  const WalkParams& p_;
  WalkShared<Shape>& shared_;
  const int warpgroup_;
  const Lane me_;
  StateTile<Shape::kTileK> state_;
  float o_[kChunkTokens / 2];
  RingPosition<Shape::kStages> chunk_at_;
  RingPosition<Shape::kValueStages> value_at_;
};

template <class Shape>
__device__ __forceinline__ void init_rings(WalkShared<Shape>& shared) {
  constexpr int kStateWarps = kWarpgroupSize / kWarpSize * Shape::kStateWarpgroups;
  if (threadIdx.x == 0) {
    shared.q_ring.init_copied(1, kStateWarps);
    shared.k_ring.init_copied(1, kStateWarps);
    shared.v_ring.init_copied(1, 1);
    for (SharedBarrier& full : shared.output_full) {
      barrier_init(&full, kStateWarps * kWarpArrivals);
    }
    barrier_init(&shared.v_landed, 1);
    barrier_init_fence();
  }
  __syncthreads();  // all barriers are made before any is used
}

template <class Shape>
__device__ __forceinline__ void load_operands(const WalkParams& p, const WalkOperands& operands,
                                              WalkShared<Shape>& shared) {
  constexpr std::uint32_t kTileBytes = WalkShared<Shape>::kTileBytes;
  constexpr std::uint32_t kDecayBytes = Shape::kTileK * sizeof(float);
  const bool leads = threadIdx.x % kWarpSize == 0;
  RingPosition<Shape::kStages> at;
  dependency_wait();
  for_each_chunk<Shape>(p, main_walk(p), [&](const WalkItem& item, int row) {
    const std::int64_t first =
        first_chunk_slot(p.sequences, item.n, {item.batch, item.begin, item.length});
    const std::int64_t index = item.head * operands.slots + first + row / kChunkTokens;
    const std::byte* const tiles = operands.tiles + 2 * index * kTileBytes;
    const auto load_tile = [&](std::byte* tile, int operand, SharedBarrier* full) {
#pragma unroll
      for (int panel = 0; panel < Shape::kPanelsK; ++panel) {
        bulk_load(shared_address(tile + panel * kPanelBytes),
                  tiles + (2 * panel + operand) * kPanelBytes, kPanelBytes, full);
      }
    };
    shared.q_ring.wait_empty(at);
    if (leads) {
      SharedBarrier* const full = &shared.q_ring.full[at.stage];
      barrier_arrive_expecting(full, kTileBytes + kDecayBytes);
      load_tile(shared.q[at.stage], 0, full);
      bulk_load(shared_address(shared.decays[at.stage]), operands.decays + index * Shape::kTileK,
                kDecayBytes, full);
    }
    shared.k_ring.wait_empty(at);
    if (leads) {
      SharedBarrier* const full = &shared.k_ring.full[at.stage];
      barrier_arrive_expecting(full, kTileBytes + kPanelBytes);
      load_tile(shared.k[at.stage], 1, full);
      bulk_load(shared_address(shared.scores[at.stage]), operands.scores + index * kPanelBytes,
                kPanelBytes, full);
    }
    at.advance();
  });
}

template <class Shape>
__device__ __forceinline__ void load_values(const WalkParams& p, WalkShared<Shape>& shared) {
  TileLoader<Shape::kPanelsV, Shape::kValueStages> v(p, p.v, shared.v_ring, shared.v[0],
                                                     &shared.v_landed);
  for_each_chunk<Shape>(p, main_walk(p), [&](const WalkItem& item, int row) {
    v.load(item, row, item.tile * Shape::kTileV);
  });
}

template <class T, class Shape>
__device__ __forceinline__ void produce(const WalkParams& p, const WalkOperands& operands,
                                        WalkShared<Shape>& shared) {
  switch (chunk_wgmma::warp_uniform(static_cast<int>(threadIdx.x) / kWarpSize)) {
    case 0:
      return load_operands(p, operands, shared);
    case 1:
      return load_values(p, shared);
    case 2:
      return chunk_wgmma::store_tiles<T>(p, shared);
  }
}

#endif

template <class T, class Config>
__global__ __launch_bounds__(WalkShape<Config>::kThreads,
                             1) void walk_operands(const __grid_constant__ WalkParams p,
                                                   const __grid_constant__ WalkOperands operands) {
#if ATTUNE_SM90A_CODE
  using Shape = WalkShape<Config>;
  static_assert(sizeof(WalkShared<Shape>) <= chunk_wgmma::kMostSharedBytes);
  auto& shared = *reinterpret_cast<WalkShared<Shape>*>(shared_memory);
  init_rings(shared);
  dependents_launch();
  clear_rows_behind<T>(p.sequences, p.extents.sequences, p.o_rows, p.extents.heads, p.extents.V,
                       static_cast<int>(threadIdx.x), Shape::kThreads);
  const int warpgroup = chunk_wgmma::warp_uniform(static_cast<int>(threadIdx.x) / kWarpgroupSize);
  if (warpgroup == 0) {
    if constexpr (Shape::kStateWarpgroups > 1) registers_shrink<Shape::kProducerRegisters>();
    produce<T>(p, operands, shared);
  } else {
    if constexpr (Shape::kStateWarpgroups > 1) registers_grow<Shape::kStateRegisters>();
    StateWalk<T, Shape>(p, shared, warpgroup - 1).run();
  }
#endif
}

template <class T>
void launch_walk(const ChunkGlaConfig& config, const WalkParams& params,
                 const WalkOperands& operands, cudaStream_t stream) {
  with_instance(config, [&]<class Config>() {
    using Shape = WalkShape<Config>;
    launch<walk_operands<T, Config>>(
        {.grid = walk_grid(params, Shape::kTileV, main_walk(params), 1),
         .block = Shape::kThreads,
         .shared_bytes = sizeof(WalkShared<Shape>),
         .overlaps_previous = true},
        stream, params, operands);
  });
}

}  // namespace attune::cuda::gla::forward
