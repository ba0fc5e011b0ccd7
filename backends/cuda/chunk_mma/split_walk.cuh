// chunk_mma.cuh's walk for f32, each operand split into two of bf16 (split.cuh).
//
// Tiles are split as they arrive, once for all warps. With three stages a chunk's tiles are there a
// chunk before its P is made, and a chunk takes a single barrier; with two it takes a second one.
#pragma once

#include "dispatch.hpp"
#include "segment_slots.cuh"
#include "split_products.cuh"

namespace attune::cuda {

/// The outputs of a chunk, and the state after it.
template <class Shape>
__device__ __forceinline__ void advance_split(State<Shape>& state, Outputs<Shape>& outputs,
                                              const SplitStage<Shape, true>& stage,
                                              const SplitWeights<Shape>& weights,
                                              const SplitDecays& decays, float scale) {
  read_split_state<Shape>(outputs, state, stage, decays, scale);
  SplitBlock values[Shape::kChunk / 16];
  load_values<Shape>(values, stage.v);
  add_split_chunk<Shape>(outputs, values, weights);
  decay_split_values<Shape>(values, decays);
  write_split_state<Shape>(state, values, stage.k, decays.whole);
}

/// grid: value tiles x segments x heads x sequences. block: 32 threads for 16 value channels.
template <class Shape>
__global__
__launch_bounds__(Shape::kThreads, split_resident_blocks(Shape::kConfig)) void chunk_mma_split(
    const __grid_constant__ SegmentWalkParams p) {
  using AllTiles = SplitStage<Shape, true>;
  using Weights = SplitWeights<Shape>;
  extern __shared__ __align__(128) std::byte memory[];
  const std::uint32_t begin = shared_address(memory);
  const std::uint32_t weights = begin + p.stages * AllTiles::kBytes;
  auto* const decays =
      reinterpret_cast<SplitDecays*>(memory + p.stages * AllTiles::kBytes + 2 * Weights::kBytes);
  const Walk walk = make_walk<Shape>(p, p.segments);
  SplitTokens<Shape, true> tokens(p, walk);
  SplitDecayScan scan(p, walk);
  const auto stage_of = [&](int chunk) {
    return AllTiles(begin + stage_number(chunk, p.stages) * AllTiles::kBytes);
  };
  const auto weights_of = [&](int chunk) { return Weights(weights + chunk % 2 * Weights::kBytes); };
  const auto weigh_chunk = [&](int chunk) {
    weigh_split(stage_of(chunk), weights_of(chunk), decays[chunk % kDecaysKept], p.scale);
  };
  /// Splits what was fetched, which is this chunk, and fetches the next one.
  const auto arrive = [&](int chunk) {
    tokens.store(stage_of(chunk), memory, walk, chunk);
    tokens.fetch(walk, chunk + 1);
  };

  tokens.fetch(walk, 0);
  for (int chunk = 0; scan.is_mine() && chunk < 2; ++chunk) {
    scan.fetch(walk, chunk);
    scan.sum(decays[chunk]);
  }
  float state[Shape::kKeys / 8][4];
  load_segment_start<Shape>(state, p, walk);
  for (int chunk = 0; chunk < p.stages - 1; ++chunk) arrive(chunk);
  __syncthreads();  // the first chunks and their decays are there
  if (walk.chunks > 0) weigh_chunk(0);

  for (int chunk = 0; chunk < walk.chunks; ++chunk) {
    __syncthreads();  // the chunk's P is there, and tiles that came; the last one is done with
    arrive(chunk + p.stages - 1);
    if (scan.is_mine()) scan.fetch(walk, chunk + 2);
    float outputs[Shape::kChunk / 8][4];
    advance_split<Shape>(state, outputs, stage_of(chunk), weights_of(chunk),
                         decays[chunk % kDecaysKept], p.scale);
    tokens.store_outputs(outputs, walk, chunk);
    if (p.stages == 2) __syncthreads();  // the next chunk's tiles are there
    if (chunk + 1 < walk.chunks) weigh_chunk(chunk + 1);
    if (scan.is_mine()) scan.sum(decays[(chunk + 2) % kDecaysKept]);
  }
  const Walk again = make_walk<Shape>(p, p.segments);  // keeping it would take registers
  if (again.segment == p.segments - 1) store_final<Shape>(state, p, again);
}

/// segment_states.cuh's kernel. grid: value tiles x (segments - 1) x heads x sequences.
template <class Shape>
__global__ __launch_bounds__(
    Shape::kThreads,
    split_resident_blocks(
        Shape::kConfig)) void chunk_mma_split_segment_states(const __grid_constant__
                                                                 SegmentWalkParams p) {
  using KeysAndValues = SplitStage<Shape, false>;
  constexpr int kStages = 2;
  extern __shared__ __align__(128) std::byte memory[];
  auto* const decays = reinterpret_cast<SplitDecays*>(memory + kStages * KeysAndValues::kBytes);
  const Walk walk = make_walk<Shape>(p, p.segments - 1);
  SplitTokens<Shape, false> tokens(p, walk);
  SplitDecayScan scan(p, walk);

  tokens.fetch(walk, 0);
  if (scan.is_mine()) scan.fetch(walk, 0);
  float state[Shape::kKeys / 8][4];
  clear<Shape>(state);
  if (walk.segment == 0) {
    load_initial<Shape>(state, p, walk);
    store_slot<Shape>(state, p, walk, segment_slot(p, walk, p.segments - 1));
  }
  float decay = 1.0F;

  for (int chunk = 0; chunk < walk.chunks; ++chunk) {
    const KeysAndValues stage(shared_address(memory) + chunk % kStages * KeysAndValues::kBytes);
    SplitDecays& own = decays[chunk % kStages];
    tokens.store(stage, memory, walk, chunk);
    if (scan.is_mine()) scan.sum(own);
    __syncthreads();  // the chunk's tiles and decays are there; the last but one is done with
    tokens.fetch(walk, chunk + 1);
    if (scan.is_mine()) scan.fetch(walk, chunk + 1);
    decay *= own.whole;
    SplitBlock values[Shape::kChunk / 16];
    load_values<Shape>(values, stage.v);
    decay_split_values<Shape>(values, own);
    write_split_state<Shape>(state, values, stage.k, own.whole);
  }
  const Walk again = make_walk<Shape>(p, p.segments - 1);  // keeping it would take registers
  const std::int64_t slot = segment_slot(p, again, again.segment);
  store_slot<Shape>(state, p, again, slot);
  if (threadIdx.x == 0 && again.value_tile == 0) p.segment_decays[slot] = decay;
}

}  // namespace attune::cuda
