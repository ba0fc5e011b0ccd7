// chunk_mma.cuh's walk for f32, each operand split into two of bf16 (split_tiles.cuh), with the gates
// g and gamma, or with gates of channels, of which channel_operands.hpp made operands. Products with
// the state are warpgroups' where there are such (split_warpgroup.cuh). Tiles are split as they
// arrive, once for all warps, by others than those that walk (split_roles.cuh).
#pragma once

#include "cuda/chunk_mma/output_factors.cuh"
#include "cuda/chunk_mma/segment_states.cuh"
#include "cuda/chunk_mma/split_loads.cuh"
#include "cuda/chunk_mma/split_roles.cuh"

namespace attune::cuda::chunk_mma {

template <class Shape, Gated kGated>
using SegmentDecaysOf = std::conditional_t<kGated == Gated::kNone, SharedSegmentDecay,
                                           ChannelSegmentDecays<Shape, kGated == Gated::kValues>>;

/// Whether a chunk of such decays goes token by token.
template <class Decays>
__device__ __forceinline__ bool has_strong(const Decays& decays) {
  bool strong = false;
  if constexpr (Decays::kPerChannel) strong = decays.keys.is_strong;
  if constexpr (Decays::kOfValues) strong = strong || decays.values.is_strong;
  return strong;
}

/// The outputs of a chunk, and the state after it.
template <class Shape, class Decays>
__device__ __forceinline__ void advance_split(State<Shape>& state, Outputs<Shape>& outputs,
                                              const SplitStage<Shape, true>& stage,
                                              const SplitScores<Shape>& scores,
                                              const Decays& decays, float scale) {
#if ATTUNE_SM90A_CODE
  SplitBlock own[2];
  queue_queries<Shape>(outputs, own, state, stage.q);
  SplitValues<Shape> values, decayed;
  load_values<Shape>(values, stage.v);
  load_values<Shape>(decayed, stage.v);
  decay_to_end<Shape>(decayed, decays);
  KeyProducts<Shape> products(decayed, stage.k);
  products.begin();
  wgmma_wait<1>();  // for those of queries
  for (const SplitBlock& block : own) hold(block);
  wgmma_pin(accumulator(outputs));
  scale_outputs<Shape>(outputs, decays, scale);
  queue_chunk<Shape>(outputs, values, scores);
  write_split_state<1>(state, products, decays);
  wgmma_wait<0>();
  for (const SplitBlock& block : values) hold(block);
  wgmma_pin(accumulator(outputs));
#else
  multiply_queries<Shape>(outputs, state, stage.q);
  SplitValues<Shape> values;
  load_values<Shape>(values, stage.v);
  decay_to_end<Shape>(values, decays);
  KeyProducts<Shape> products(values, stage.k);
  products.begin();
  scale_outputs<Shape>(outputs, decays, scale);
  add_split_chunk<Shape>(outputs, stage.v, scores);
  write_split_state<0>(state, products, decays);
#endif
}

/// What a chunk adds to the state.
template <class Shape, class Decays>
__device__ __forceinline__ void add_split_keys(State<Shape>& state,
                                               const SplitStage<Shape, false>& stage,
                                               const Decays& decays) {
  SplitValues<Shape> values;
  load_values<Shape>(values, stage.v);
  decay_to_end<Shape>(values, decays);
  KeyProducts<Shape> products(values, stage.k);
  products.begin();
  write_split_state<0>(state, products, decays);
}

/// make_walk() in a grid that has slices of key channels along y.
template <class Shape, bool kMayBeParts = true>
__device__ __forceinline__ Walk make_split_walk(const SplitWalkParams& p, int segments) {
  Walk walk = make_walk<Shape, kMayBeParts>(p, segments);
  walk.slice = static_cast<int>(blockIdx.y);
  return walk;
}

/// What the walkers of a block do: outputs, and the state behind the last chunk.
template <class Shape, Gated kGated, bool kKeeps>
__device__ __forceinline__ void walk_chunks(const SplitWalkParams& p, const Walk& walk,
                                            const SplitMemory<Shape, kGated>& memory,
                                            const StageSignals<Shape::kThreads>& signals) {
  using Decays = typename SplitMemory<Shape, kGated>::Decays;
  const SplitOutputs<Shape> to(p, walk);
  const OutputFactors<Shape> factors(memory.end());
  float state[Shape::kKeys / 8][4];
  load_segment_start<Shape, SegmentDecaysOf<Shape, kGated>>(state, p, walk);
#pragma unroll 1
  for (int chunk = 0; chunk < walk.chunks; ++chunk) {
    if constexpr (Decays::kOfValues) factors.fetch(p, walk, chunk);
    signals.wait_published(chunk);
    float outputs[Shape::kChunk / 8][4];
    const Decays& decays = memory.decays(chunk);
    const bool strong = has_strong(decays);
    if constexpr (Decays::kPerChannel) {
      if (strong) {
        TokenWalk<Shape, Decays, true>(p, walk, chunk, decays)
            .run(state, outputs, memory.stage(chunk), p.scale);
      }
    }
    if (!strong) {
      advance_split<Shape>(state, outputs, memory.stage(chunk), memory.scores(chunk), decays,
                           p.scale);
    }
    signals.release(chunk, walk.chunks);
    if constexpr (Decays::kOfValues) factors.apply(outputs);
    to.store(outputs, walk, chunk);
    if constexpr (kKeeps) {
      const Walk again = make_split_walk<Shape, !kKeeps>(p, p.segments);
      store_state<Shape>(state, p, again, snapshot_behind<Shape>(p, again, chunk));
    }
  }
  const Walk again =
      make_split_walk<Shape, !kKeeps>(p, p.segments);  // keeping it would take registers
  store_state<Shape>(state, p, again, final_behind(p, again));
}

/// grid: value tiles x segments x heads x sequences, slices. block: walkers, 32 threads for 16 value
/// channels, then as many loaders.
template <class Shape, Gated kGated, bool kKeeps>
__global__
__launch_bounds__(2 * Shape::kThreads, split_resident_blocks(Shape::kConfig)) void chunk_mma_split(
    const __grid_constant__ SplitWalkParams p) {
  extern __shared__ __align__(kWarpgroupAlignment) std::byte shared[];
  const Walk walk = make_split_walk<Shape, !kKeeps>(p, p.segments);
  clear_rows_behind<float>(p.sequences, p.sequence_count, p.o, p.heads, p.value_channels,
                           static_cast<int>(threadIdx.x), 2 * Shape::kThreads);
  if (walk.span.is_left_out || !has_segment(walk)) return;
  const SplitMemory<Shape, kGated> memory(shared, p.stages);
  const StageSignals<Shape::kThreads> signals(p.stages);
  if (threadIdx.x < Shape::kThreads) {
#if ATTUNE_SM90A_CODE
    registers_grow<kWalkerRegisters<Shape>>();
#endif
    walk_chunks<Shape, kGated, kKeeps>(p, walk, memory, signals);
  } else {
#if ATTUNE_SM90A_CODE
    registers_shrink<kLoaderRegisters<Shape>>();
#endif
    load_chunks(p, walk, memory, signals);
  }
}

__device__ __forceinline__ void decay_by(float& x, const float2& total) {
  x = fmaf(x, total.x, x * total.y);
}

/// segment_states.cuh's kernel. grid: value tiles x (segments - 1) x heads x sequences, slices.
template <class Shape, Gated kGated>
__global__ __launch_bounds__(
    Shape::kThreads,
    split_resident_blocks(
        Shape::kConfig)) void chunk_mma_split_segment_states(const __grid_constant__ SplitWalkParams
                                                                 p) {
  using KeysAndValues = SplitStage<Shape, false>;
  using DecayScan = DecaysOf<Shape, kGated>;
  using Decays = typename DecayScan::Decays;
  constexpr int kStages = 2;
  extern __shared__ __align__(kWarpgroupAlignment) std::byte memory[];
  auto* const decays = reinterpret_cast<Decays*>(memory + kStages * KeysAndValues::kBytes);
  const Walk walk = make_split_walk<Shape>(p, p.segments - 1);
  if (walk.span.is_left_out || !has_next_segment(walk)) return;
  LoadedTokens<Shape> tokens(p, walk);
  DecayScan scan(p, walk);
  const bool scans = scan.is_done_by(static_cast<int>(threadIdx.x), Shape::kThreads);

  tokens.fetch(walk, 0);
  if (scans) scan.fetch(walk, 0);
  float state[Shape::kKeys / 8][4];
  clear<Shape>(state);
  if (walk.segment == 0) {
    load_initial<Shape>(state, p, walk);
    store_segment<Shape>(state, p, walk, sum_index(p, walk, walk.segments - 1));
  }
  float decay = 1.0F;  // with gates of channels, of the thread's own key channel
  float value_decay = 1.0F;

  for (int chunk = 0; chunk < walk.chunks; ++chunk) {
    const KeysAndValues stage(shared_address(memory) + chunk % kStages * KeysAndValues::kBytes);
    Decays& own = decays[chunk % kStages];
    tokens.store(stage, memory, walk, chunk);
    hand_to_products();
    if (scans) scan.sum(own);
    __syncthreads();  // the chunk's tiles and decays are there; the last but one is done with
    tokens.fetch(walk, chunk + 1);
    if (scans) scan.fetch(walk, chunk + 1);
    if constexpr (Decays::kPerChannel) {
      if (threadIdx.x < Shape::kKeys) decay_by(decay, own.keys.totals[threadIdx.x]);
      if constexpr (Decays::kOfValues) {
        if (threadIdx.x < Shape::kValues) decay_by(value_decay, own.values.totals[threadIdx.x]);
      }
      if (has_strong(own)) {
        float nothing[Shape::kChunk / 8][4];
        TokenWalk<Shape, Decays, false>(p, walk, chunk, own).run(state, nothing, stage, 0.0F);
        continue;
      }
    } else {
      decay *= own.total;
    }
    add_split_keys<Shape>(state, stage, own);
  }
  const Walk again = make_split_walk<Shape>(p, p.segments - 1);  // keeping it would take registers
  const std::int64_t index = sum_index(p, again, again.segment);
  store_segment<Shape>(state, p, again, index);
  if constexpr (Decays::kOfValues) {
    const std::int64_t first = index * p.values.channels + again.first_value;
    if (threadIdx.x < Shape::kValues) p.segment_value_decays[first + threadIdx.x] = value_decay;
  }
  if (again.value_tile != 0) return;
  if constexpr (Decays::kPerChannel) {
    if (threadIdx.x < Shape::kKeys) p.segment_decays[index * Shape::kKeys + threadIdx.x] = decay;
  } else if (threadIdx.x == 0) {
    p.segment_decays[index] = decay;
  }
}

/// Calls f.operator()<Shape>() for the shape that K, or a slice of it, and a config have.
template <class F>
void with_split_shape(const SegmentWalkParams& params, const ChunkMmaConfig& config, F&& f) {
  SegmentWalkParams slice = params;
  slice.key_channels = std::min(params.key_channels, kMaxSplitKeys);
  with_shape(slice, config, [&]<class Shape>() {
    if constexpr (is_compiled_split(Shape::kKeys, Shape::kConfig)) {
      f.template operator()<Shape>();
    } else {
      throw_no_instance("f32 with chunk=64 or K > 128");
    }
  });
}

inline dim3 split_grid(const SplitWalkParams& params, int segments) {
  return {block_count(params, segments), static_cast<unsigned>(params.slices)};
}

template <class T, Gated kGated>
void launch_split_walk(const SplitWalkParams& params, const ChunkMmaConfig& config,
                       cudaStream_t stream) {
  with_split_shape(params, config, [&]<class Shape>() {
    with_value<false, true>(params.snapshots.every > 0, [&]<bool kKeeps>() {
      launch<chunk_mma_split<Shape, kGated, kKeeps>>(
          {.grid = split_grid(params, params.segments),
           .block = 2 * Shape::kThreads,
           .shared_bytes = split_shared_bytes(Shape::kKeys, kGated, config)},
          stream, params);
    });
  });
}

template <class T, Gated kGated>
void launch_split_segment_states(const SplitWalkParams& params, const ChunkMmaConfig& config,
                                 cudaStream_t stream) {
  SplitWalkParams narrow = params;
  narrow.value_tiles = params.value_tiles * config.warps / kSegmentWarps;
  with_split_shape(params, segment_config(config), [&]<class Shape>() {
    if constexpr (Shape::kConfig.warps == kSegmentWarps) {
      using Decays = typename DecaysOf<Shape, kGated>::Decays;
      launch<chunk_mma_split_segment_states<Shape, kGated>>(
          {.grid = split_grid(narrow, narrow.segments - 1),
           .block = Shape::kThreads,
           .shared_bytes = 2 * (SplitStage<Shape, false>::kBytes + sizeof(Decays))},
          stream, narrow);
    }
  });
}

}  // namespace attune::cuda::chunk_mma
