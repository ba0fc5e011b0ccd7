// Where the segments of a sequence start from.
//
// A segment can be walked before those in front of it once its start is known. That takes their
// keys and values alone: one pass finds what each segment adds to an empty state, and the blocks
// that make outputs begin with L_{r-1} + d_{r-1} (L_{r-2} + d_{r-2} (...)), where L is what a
// segment added and d what it decayed. The first segment's L includes the caller's initial state.
#pragma once

#include "decays.cuh"
#include "dispatch.hpp"
#include "products.cuh"
#include "segment_slots.cuh"
#include "stages.cuh"

namespace attune::cuda {

inline constexpr int kSegmentDecays = 2;  // of the chunk at hand and of the next one

/// grid: value tiles x (segments - 1) x heads x sequences. block: 32 threads for 16 value channels.
template <class T, class Shape>
__global__
__launch_bounds__(Shape::kThreads, Shape::kResidentSegmentBlocks) void chunk_mma_segment_states(
    const __grid_constant__ SegmentWalkParams p) {
  using KeysAndValues = Stage<Shape, false>;
  using Decays = ChunkDecays<Shape::kChunk>;
  extern __shared__ __align__(128) std::byte memory[];
  auto* const decays = reinterpret_cast<Decays*>(memory + p.stages * KeysAndValues::kBytes);
  const Walk walk = make_walk<Shape>(p, p.segments - 1);
  const BlockTokens<T, Shape> tokens(p, walk);
  DecayScan<T, Shape::kChunk> scan(p, walk);
  const auto stage_of = [&](int chunk) {
    return KeysAndValues(shared_address(memory) +
                         stage_number(chunk, p.stages) * KeysAndValues::kBytes);
  };
  const auto load = [&](int chunk) {
    if (chunk < walk.chunks) tokens.load(stage_of(chunk), walk, chunk);
    copy_async_commit();
  };

  for (int chunk = 0; chunk < p.stages - 1; ++chunk) load(chunk);
  if (scan.is_mine()) {
    scan.fetch(walk, 0);
    scan.sum(decays[0]);
  }
  float state[Shape::kKeys / 8][4];
  clear<Shape>(state);
  if (walk.segment == 0) {
    load_initial<Shape>(state, p, walk);
    store_slot<Shape>(state, p, walk, segment_slot(p, walk, p.segments - 1));
  }
  float decay = 1.0F;

  for (int chunk = 0; chunk < walk.chunks; ++chunk) {
    wait_for_stage(p.stages);
    __syncthreads();  // this chunk's tiles and decays are there; the last one is done with
    load(chunk + p.stages - 1);
    if (scan.is_mine()) scan.fetch(walk, chunk + 1);
    const KeysAndValues stage = stage_of(chunk);
    const Decays& own = decays[chunk % kSegmentDecays];
    decay *= own.whole;
    scale_state<Shape>(state, own.whole);
#pragma unroll
    for (int step = 0; step < Shape::kChunk / 16; ++step) {
      std::uint32_t values[4];
      load_matrices_transposed(values, stage.v.across(16 * step, own_channel()));
      decay_values<T, Shape>(values, own, step);
      write_state<T, Shape>(state, values, stage.k, step);
    }
    if (scan.is_mine()) scan.sum(decays[(chunk + 1) % kSegmentDecays]);
  }
  const std::int64_t slot = segment_slot(p, walk, walk.segment);
  store_slot<Shape>(state, p, walk, slot);
  if (threadIdx.x == 0 && walk.value_tile == 0) p.segment_decays[slot] = decay;
}

/// In blocks of kSegmentWarps, whatever the main kernel's have.
template <class T>
void launch_segment_states(const SegmentWalkParams& params, const ChunkMmaConfig& config,
                           cudaStream_t stream) {
  SegmentWalkParams narrow = params;
  narrow.value_tiles = params.value_tiles * config.warps / kSegmentWarps;
  dispatch_shape(params, segment_config(config), [&]<class Shape>() {
    if constexpr (Shape::kConfig.warps == kSegmentWarps) {
      launch<chunk_mma_segment_states<T, Shape>>(
          {.grid = block_count(narrow, narrow.segments - 1),
           .block = Shape::kThreads,
           .shared_bytes = static_cast<std::size_t>(params.stages * Stage<Shape, false>::kBytes) +
                           kSegmentDecays * sizeof(ChunkDecays<Shape::kChunk>)},
          stream, narrow);
    }
  });
}

}  // namespace attune::cuda
