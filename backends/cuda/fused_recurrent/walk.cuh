// The kernel of walk.hpp.
//
// A block has a tile of one head's state, spread over the registers of its state warps. Two more
// warps stage tokens in shared memory, as fp32 and with their decays, and write what the state
// warps read; so loads, conversions and exponentials happen once a token and block, under the
// fused multiply-adds. There is one barrier a stage of some tokens.
#pragma once

#include "cuda/fused_recurrent/fused_recurrent_config.hpp"
#include "cuda/fused_recurrent/walk_stage.cuh"
#include "cuda/fused_recurrent/walk_state.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::fused_recurrent {

/// A barrier of the whole block, which state warps and staging warps reach from different code.
__device__ __forceinline__ void stage_barrier() { block_barrier_sync<1>(); }

/// Takes the tile through all stages, with a checkpoint before or after some of them.
template <class T, int kRows, int kGates>
__device__ void walk_state(const WalkShape& shape, const WalkParams& p, const WalkBlock& block,
                           float* shared) {
  using Use = WalkCheckpoints::Use;
  const int buffer_floats = stage_layout(shape, kGates, std::is_same_v<T, float>).floats;
  StateTile<T, kRows, kGates> tile(shape, p, block);
  tile.load();
  stage_barrier();  // stage 0 is there
  for (std::int64_t s = 0;; ++s) {
    const std::int64_t checkpoint = checkpoint_before(shape, p, block, s);
    if (checkpoint >= 0 && p.checkpoints.use == Use::kKeep) tile.keep(checkpoint);
    if (checkpoint >= 0 && p.checkpoints.use == Use::kMeet) tile.meet(checkpoint);
    if (s == block.stages) break;
    tile.advance(stage_of(shape, block, s).count, shared + s % 2 * buffer_floats);
    stage_barrier();  // this buffer may be refilled, the next one is full
  }
  tile.store();
}

/// Stages tokens one stage ahead of the state warps, and stores what they read one stage behind.
template <class T, int kGates, Staged kStaged>
__device__ void walk_tokens(const WalkShape& shape, const WalkParams& p, const WalkBlock& block,
                            float* shared) {
  const Stager<T, kGates, kStaged> stager(shape, p, block, shared);
  const auto buffer_of = [](std::int64_t stage) { return static_cast<int>(stage % 2); };
  if (block.stages > 0) stager.stage(stage_of(shape, block, 0), 0);
  stage_barrier();  // stage 0 is there
  for (std::int64_t s = 0; s < block.stages; ++s) {
    if (s > 0) stager.store(stage_of(shape, block, s - 1), buffer_of(s - 1));
    // The next stage lands in the buffer that was just stored from: its tokens and its sums lie
    // apart, and the state warps write sums only after the barrier.
    if (s + 1 < block.stages) stager.stage(stage_of(shape, block, s + 1), buffer_of(s + 1));
    stage_barrier();  // the next buffer is full, this one may be refilled
  }
  if (block.stages > 0) {
    stager.store(stage_of(shape, block, block.stages - 1), buffer_of(block.stages - 1));
  }
}

/// What the compiler is told of a block, as it decides about registers: more threads than there
/// are, so that more blocks fit on a multiprocessor.
constexpr int bounding_threads(int rows_per_lane) {
  constexpr int kFor96Registers = 640;
  constexpr int kFor128Registers = 512;
  if (rows_per_lane <= 8) return kFor96Registers;
  if (rows_per_lane <= 16) return kFor128Registers;
  return (max_state_warps(rows_per_lane) + kStagingWarps) * kWarpSize;
}

template <class T, int kRows, int kGates>
__global__ __launch_bounds__(bounding_threads(kRows)) void recurrent_walk(
    const __grid_constant__ WalkShape shape, const __grid_constant__ WalkParams p) {
  // The block's work is not in registers, which are scarce, and found by one thread.
  struct Work {
    WalkBlock block;
    bool exists;
  };
  static_assert(sizeof(Work) <= kWorkBytes);
  extern __shared__ float4 shared_quads[];
  auto& work = *reinterpret_cast<Work*>(shared_quads);
  float* const shared = reinterpret_cast<float*>(shared_quads + kWorkBytes / sizeof(float4));
  if (threadIdx.x == 0) {
    WalkBlock found;
    work.exists = find_block(shape, p, found);
    work.block = found;
  } else {
    clear_rows_behind<T>(p.sequences, p.sequence_count, p.out, p.heads, p.columns,
                         static_cast<int>(threadIdx.x) - 1, static_cast<int>(blockDim.x) - 1);
  }
  __syncthreads();  // the work is found
  if (!work.exists) return;
  const WalkBlock& block = work.block;
  const int staging_thread = static_cast<int>(threadIdx.x) - shape.state_warps() * kWarpSize;
  if (staging_thread < 0) {
    walk_state<T, kRows, kGates>(shape, p, block, shared);
  } else if (staging_thread < kHalfThreads) {
    walk_tokens<T, kGates, Staged::kReadsAndWrites>(shape, p, block, shared);
  } else {
    walk_tokens<T, kGates, Staged::kValuesAndDecays>(shape, p, block, shared);
  }
}

template <class T>
void launch_walk(const WalkShape& shape, const WalkParams& p, cudaStream_t stream) {
  const std::int64_t blocks =
      p.parts() * p.heads * row_blocks(shape, p.rows) * column_blocks(shape, p.columns);
  const auto threads = static_cast<unsigned>((shape.state_warps() + kStagingWarps) * kWarpSize);
  const int gates =
      (p.row_gate.view.given() ? kRowGates : 0) | (p.column_gate.view.given() ? kColumnGates : 0);
  with_value_of<kAxisValues<&FusedRecurrentConfig::rows_per_lane>>(
      shape.rows_per_lane, [&]<int kRows>() {
        with_value_of<kGateSets>(gates, [&]<int kGates>() {
          launch<recurrent_walk<T, kRows, kGates>>(
              {.grid = grid_of(blocks),
               .block = threads,
               .shared_bytes = walk_shared_bytes(shape, kGates, std::is_same_v<T, float>)},
              stream, shape, p);
        });
      });
}

}  // namespace attune::cuda::fused_recurrent
