// The walk: one block walks 64 value channels of a head of a sequence, chunk by chunk. Blocks of the same
// head make its operands for one another.
//
//   makers     two warpgroups make operands of a part of the chunks (operands.cuh)
//   producers  one warp each stores operands, loads those of all chunks, loads v, stores o
//   state      S^T in registers from the first chunk to the last:
//                S^T = S^T decays,  O^T = S^T Q'^T + V^T P^T,  S^T = S^T + V^T K'
//
// Outputs go out from the stages that v came in.
#pragma once

#include <algorithm>

#include "cuda/chunks/chunk_walk.cuh"
#include "cuda/gla/forward/courier.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/runtime/multiprocessors.hpp"
#include "cuda/wgmma_walk/state.cuh"

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
using chunk_wgmma::shared_memory;
using chunk_wgmma::StateOperand;
using chunk_wgmma::StateTile;
using chunk_wgmma::TileLoader;
using chunk_wgmma::ValueFragments;

/// Queues O^T = S^T Q'^T for a chunk and commits it. Panels of the state are decayed before the
/// products see them, or after that where their decays are negative. `decays`: of a lane's first column.
template <class T, int kTileK>
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
    operand.round<T, kStepsAtOnce>(state, first);
    if (strong != 0) decay(first, strong);
    state.pin();
    wgmma_fence();
    chunk_wgmma::queue_state_products<T, kStepsAtOnce>(o, operand, queries, first);
  }
}

/// The work of the state's warpgroup.
template <class T, class Shape>
class StateWalk {
 public:
  __device__ __forceinline__ StateWalk(const WalkParams& p, WalkShared<Shape>& shared)
      : p_(p), shared_(shared) {}

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
    return item.tile * Shape::kTileV;
  }

  __device__ __forceinline__ void walk_chunk() {
    constexpr int kStepsAtOnce = StateOperand::steps_at_once(Shape::kTileK);
    const std::uint32_t panel = shared_address(shared_.v[value_at_.stage]);
    StateOperand operand;
    ValueFragments values;
    shared_.q_ring.wait_full(chunk_at_);
    queue_decayed_read<T>(o_, state_, operand, shared_address(shared_.q[chunk_at_.stage]),
                          shared_.decays[chunk_at_.stage] + me_.column, me_.lane);
    shared_.v_ring.wait_full(value_at_);
    values.load(panel, me_);
    shared_.k_ring.wait_full(chunk_at_);
    wgmma_fence();
    chunk_wgmma::queue_scored_values<T>(o_, values, shared_.scores[chunk_at_.stage]);
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

  const WalkParams& p_;
  WalkShared<Shape>& shared_;
  const Lane me_;
  StateTile<Shape::kTileK> state_;
  float o_[kChunkTokens / 2];
  RingPosition<Shape::kStages> chunk_at_;
  RingPosition<Shape::kValueStages> value_at_;
};

template <class Shape>
__device__ __forceinline__ void init_rings(WalkShared<Shape>& shared) {
  constexpr int kStateWarps = kWarpgroupSize / kWarpSize;
  if (threadIdx.x == 0) {
    shared.q_ring.init_copied(1, kStateWarps);
    shared.k_ring.init_copied(1, kStateWarps);
    shared.v_ring.init_copied(1, 1);
    for (SharedBarrier& full : shared.output_full) {
      barrier_init(&full, kStateWarps * kWarpArrivals);
    }
    barrier_init(&shared.v_landed, 1);
    shared.operands.init_rings();
    barrier_init_fence();
  }
  __syncthreads();  // all barriers are made before any is used
}

template <class Shape>
__device__ __forceinline__ void load_operands(const WalkParams& p, const GlaParams& operands,
                                              const WalkProgress& progress,
                                              WalkShared<Shape>& shared) {
  constexpr std::uint32_t kTileBytes = WalkShared<Shape>::kTileBytes;
  constexpr std::uint32_t kDecayBytes = Shape::kTileK * sizeof(float);
  const bool leads = threadIdx.x % kWarpSize == 0;
  RingPosition<Shape::kStages> at;
  for_each_chunk<Shape>(p, main_walk(p), [&](const WalkItem& item, int row) {
    const std::int64_t index = chunk_index(p, operands.slots, item, row);
    const unsigned char* const tiles =
        workspace_panel(operands.x_from_start, index, 2 * Shape::kPanelsK);
    const auto load_tile = [&](std::byte* tile, int operand, SharedBarrier* full) {
#pragma unroll
      for (int panel = 0; panel < Shape::kPanelsK; ++panel) {
        bulk_load(shared_address(tile + panel * kPanelBytes),
                  tiles + (2 * panel + operand) * kPanelBytes, kPanelBytes, full);
      }
    };
    shared.q_ring.wait_empty(at);
    if (leads) {
      wait_for_publication(&progress.is_made[index]);
      SharedBarrier* const full = &shared.q_ring.full[at.stage];
      barrier_arrive_expecting(full, kTileBytes + kDecayBytes);
      load_tile(shared.q[at.stage], 0, full);
      bulk_load(shared_address(shared.decays[at.stage]),
                operands.total_decay + index * Shape::kTileK, kDecayBytes, full);
    }
    shared.k_ring.wait_empty(at);
    if (leads) {
      SharedBarrier* const full = &shared.k_ring.full[at.stage];
      barrier_arrive_expecting(full, kTileBytes + kPanelBytes);
      load_tile(shared.k[at.stage], 1, full);
      bulk_load(shared_address(shared.scores[at.stage]), workspace_panel(operands.scores, index, 1),
                kPanelBytes, full);
    }
    __syncwarp();  // or others might wait for a phase that has long been followed by another
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
__device__ __forceinline__ void produce(int warp, const WalkParams& p, const GlaParams& operands,
                                        const WalkProgress& progress, WalkShared<Shape>& shared) {
  switch (warp) {
    case 0:
      return load_operands(p, operands, progress, shared);
    case 1:
      return load_values(p, shared);
    case 2:
      return chunk_wgmma::store_tiles<T>(p, shared);
    case 3:
      return OperandCourier<T, Shape, OperandsShared<Shape::kTileK>>(p, operands, progress,
                                                                     shared.operands)
          .run();
  }
}

#endif

/// Nothing is taken or made.
inline __global__ void begin_progress(const WalkProgress progress, std::int64_t walks,
                                      std::int64_t chunks) {
  take_over_from_previous_launch();
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < walks; i += step) progress.taken[i] = 0;
  for (std::int64_t i = first; i < chunks; i += step) progress.is_made[i] = 0;
}

template <class T, class Config>
__global__ __launch_bounds__(WalkShape<Config>::kThreads,
                             1) void walk_chunks(const __grid_constant__ WalkParams p,
                                                 const __grid_constant__ GlaParams operands,
                                                 const __grid_constant__ WalkProgress progress) {
#if ATTUNE_SM90A_CODE
  using Shape = WalkShape<Config>;
  static_assert(sizeof(WalkShared<Shape>) <= chunk_wgmma::kMostSharedBytes);
  auto& shared = *reinterpret_cast<WalkShared<Shape>*>(shared_memory);
  init_rings(shared);
  take_over_from_previous_launch();
  clear_rows_behind<T>(p.sequences, p.extents.sequences, p.o_rows, p.extents.heads, p.extents.V,
                       static_cast<int>(threadIdx.x), Shape::kThreads);
  constexpr int kMakerWarpgroups = kBlockThreads / kWarpgroupSize;
  const int warp = warp_uniform(static_cast<int>(threadIdx.x) / kWarpSize);
  const int warpgroup = warp / (kWarpgroupSize / kWarpSize);
  if (warpgroup < kMakerWarpgroups) {
    registers_shrink<Shape::kMakerRegisters>();
    ChunkOperands<T, OperandsShared<Shape::kTileK>>(operands, shared.operands).make_all();
  } else if (warpgroup == kMakerWarpgroups) {
    registers_shrink<Shape::kProducerRegisters>();
    produce<T>(warp - kBlockThreads / kWarpSize, p, operands, progress, shared);
  } else {
    registers_grow<Shape::kStateRegisters>();
    StateWalk<T, Shape>(p, shared).run();
  }
#endif
}

template <class T>
void launch_walk(const ChunkGlaConfig& config, const WalkParams& params, const GlaParams& operands,
                 const WalkProgress& progress, cudaStream_t stream) {
  constexpr std::int64_t kThreads = 256;
  const std::int64_t walks = params.extents.sequences * params.extents.heads;
  const std::int64_t chunks = operands.slots * operands.heads;
  const std::int64_t blocks =
      std::min((std::max(walks, chunks) + kThreads - 1) / kThreads, multiprocessor_count());
  launch<begin_progress>({.grid = dim3(static_cast<unsigned>(blocks)),
                          .block = dim3(kThreads),
                          .overlaps_previous = true},
                         stream, progress, walks, chunks);
  with_instance(config, [&]<class Config>() {
    using Shape = WalkShape<Config>;
    launch<walk_chunks<T, Config>>({.grid = walk_grid(params, kValueTile, main_walk(params), 1),
                                    .block = Shape::kThreads,
                                    .shared_bytes = sizeof(WalkShared<Shape>),
                                    .overlaps_previous = true},
                                   stream, params, operands, progress);
  });
}

}  // namespace attune::cuda::gla::forward
