// The kernel of walk.hpp.
//
// A block has a tile of one head's state. Its state warps keep it in registers and take it through
// chunks of tokens in shared memory; the staging warps bring the next chunk meanwhile and make its
// decays, once a block. There is one barrier of the block a chunk.
#pragma once

#include <type_traits>

#include "cuda/chunk_tf32/chunk_stage.cuh"
#include "cuda/chunk_tf32/chunk_state.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_tf32 {

/// A barrier of the whole block, which state warps and staging warps reach from different code.
__device__ __forceinline__ void chunk_barrier() { block_barrier_sync<1>(); }

template <class T, int kRows, int kParts, bool kKeeps>
__device__ __forceinline__ void walk_state(const WalkTile& tile, const WalkParams& p,
                                           const ChunkBlock& block, float* shared) {
  using Use = WalkCheckpoints::Use;
  ChunkState<T, kRows, kParts> state(tile, p, block, shared);
  state.load();
  chunk_barrier();  // chunk 0 is there
  for (std::int64_t chunk = 0;; ++chunk) {
    const std::int64_t checkpoint = checkpoint_before(p, block, chunk);
    if (checkpoint >= 0 && p.checkpoints.use == Use::kKeep) state.keep(checkpoint);
    if (checkpoint >= 0 && p.checkpoints.use == Use::kMeet) state.meet(checkpoint);
    if (chunk == block.chunks) break;
    state.advance(chunk);
    if constexpr (kKeeps) {
      const std::int64_t walked = block.first_step(chunk) + block.steps(chunk);
      state.store(snapshot_of(p.snapshots, block.sequence, walked));
    }
    chunk_barrier();  // this buffer may be refilled, the next one is full
  }
  state.store(end_of(p, block));
}

/// Stages chunks one ahead of the state warps, with the loads of the one after it under way.
template <class Stager>
__device__ __forceinline__ void walk_tokens(Stager stager, const ChunkBlock& block, float* shared,
                                            int buffer_floats) {
  if (block.chunks > 0) stager.fetch(0);
  for (std::int64_t chunk = 0; chunk <= block.chunks; ++chunk) {
    if (chunk < block.chunks) stager.stage(shared + chunk % 2 * buffer_floats);
    if (chunk + 1 < block.chunks) stager.fetch(chunk + 1);
    chunk_barrier();  // this chunk is there, the buffer of the last one may be refilled
  }
}

/// kKeeps: there may be snapshots.
template <class T, int kRows, int kParts, bool kKeeps>
__global__ __launch_bounds__(kMaxThreads) void chunk_walk(const __grid_constant__ WalkTile tile,
                                                          const __grid_constant__ WalkParams p) {
  extern __shared__ float4 shared_quads[];
  float* const shared = reinterpret_cast<float*>(shared_quads);
  __shared__ ChunkBlock block;  // in registers it would take too many
  __shared__ bool has_work;
  if (threadIdx.x == 0) {
    block = {};
    has_work = find_block(tile, p, block);
  } else {
    clear_rows_behind<T>(p.sequences, p.sequence_count, p.out, p.heads, p.columns,
                         static_cast<int>(threadIdx.x) - 1, static_cast<int>(blockDim.x) - 1);
  }
  __syncthreads();  // the block's work is known
  if (!has_work) return;
  const int thread = static_cast<int>(threadIdx.x) - tile.state_threads();
  const int buffer_floats = column_layout(RowLayout<kRows, kParts>::kEnd, tile.columns(), kParts,
                                          p.column_gate.view.given())
                                .end;
  if (thread < 0) {
    walk_state<T, kRows, kParts, kKeeps>(tile, p, block, shared);
  } else if (thread < kRows) {
    walk_tokens(RowStager<T, kRows, kParts>(tile, p, block, thread), block, shared, buffer_floats);
  } else {
    walk_tokens(ColumnStager<T, kRows, kParts>(tile, p, block, thread - kRows), block, shared,
                buffer_floats);
  }
}

template <class T>
void launch_chunk_walk(const WalkTile& tile, int parts, const WalkParams& p, cudaStream_t stream) {
  const std::int64_t blocks = p.parts() * p.heads * tile_count(tile, p.rows, p.columns);
  with_value<1, 2>(parts, [&]<int kParts>() {
    with_value_of<kTileRows>(tile.rows, [&]<int kRows>() {
      with_value<false, true>(p.snapshots.every > 0, [&]<bool kKeeps>() {
        // In 16 bits only gradients, of which there are no snapshots, take operands in two parts.
        if constexpr (kKeeps && kParts == 2 && !std::is_same_v<T, float>) {
          throw_no_instance("snapshots of operands in two parts");
        } else {
          launch<chunk_walk<T, kRows, kParts, kKeeps>>(
              {.grid = grid_of(blocks),
               .block = static_cast<unsigned>(tile.threads()),
               .shared_bytes = shared_bytes(tile, kParts, p.column_gate.view.given())},
              stream, tile, p);
        }
      });
    });
  });
}

}  // namespace attune::cuda::chunk_tf32
