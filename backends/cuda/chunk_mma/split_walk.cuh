// chunk_mma.cuh's walk for f32, each operand split into two of bf16 (split_tiles.cuh), with the gates
// g and gamma, or with gates of channels, of which channel_operands.hpp made operands. Products with
// the state are warpgroups' where there are such (split_warpgroup.cuh).
//
// Tiles are split as they arrive, once for all warps. With three stages a chunk's tiles are there a
// chunk before its P is made, and a chunk takes a single barrier; with two it takes a second one.
#pragma once

#include "cuda/chunk_mma/channel_decays.cuh"
#include "cuda/chunk_mma/output_factors.cuh"
#include "cuda/chunk_mma/segment_states.cuh"
#include "cuda/chunk_mma/split_products.cuh"

namespace attune::cuda::chunk_mma {

template <class Shape, Gated kGated>
using DecaysOf = std::conditional_t<
    kGated == Gated::kNone, SplitDecayScan,
    ChannelDecayLoads<Shape::kKeys, kGated == Gated::kValues ? Shape::kValues : 0>>;
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
  multiply_queries<Shape>(outputs, state, stage.q);
  SplitValues<Shape> values;
  load_values<Shape>(values, stage.v);
  decay_to_end<Shape>(values, decays);
  KeyProducts<Shape> products(values, stage.k);
  products.begin();
  scale_outputs<Shape>(outputs, decays, scale);
  add_split_chunk<Shape>(outputs, stage.v, scores);
  write_split_state<Shape>(state, products, decays);
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
  write_split_state<Shape>(state, products, decays);
}

/// make_walk() in a grid that has slices of key channels along y.
template <class Shape, bool kMayBeParts = true>
__device__ __forceinline__ Walk make_split_walk(const SplitWalkParams& p, int segments) {
  Walk walk = make_walk<Shape, kMayBeParts>(p, segments);
  walk.slice = static_cast<int>(blockIdx.y);
  return walk;
}

/// Waits for what was loaded to the state, by adding zeros that the compiler can't tell. Else the loop
/// would wait at its first use, each time around, for whatever shares a scoreboard with those loads:
/// the next chunk's tiles.
template <class Shape>
__device__ __forceinline__ void wait_for_state(State<Shape>& state, const Walk& walk) {
  const auto zero = static_cast<float>(min(walk.chunks, 0));
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 8; ++j) {
#pragma unroll
    for (float& element : state[j]) element += zero;
  }
}

/// grid: value tiles x segments x heads x sequences, slices. block: 32 threads for 16 value channels.
template <class Shape, Gated kGated, bool kKeeps>
__global__
__launch_bounds__(Shape::kThreads, split_resident_blocks(Shape::kConfig)) void chunk_mma_split(
    const __grid_constant__ SplitWalkParams p) {
  using AllTiles = SplitStage<Shape, true>;
  using Scores = SplitScores<Shape>;
  using DecayScan = DecaysOf<Shape, kGated>;
  using Decays = typename DecayScan::Decays;
  extern __shared__ __align__(kWarpgroupAlignment) std::byte memory[];
  const std::uint32_t begin = shared_address(memory);
  const std::uint32_t scores = begin + p.stages * AllTiles::kBytes;
  auto* const decays =
      reinterpret_cast<Decays*>(memory + p.stages * AllTiles::kBytes + 2 * Scores::kBytes);
  const Walk walk = make_split_walk<Shape, !kKeeps>(p, p.segments);
  clear_rows_behind<float>(p.sequences, p.sequence_count, p.o, p.heads, p.value_channels,
                           static_cast<int>(threadIdx.x), Shape::kThreads);
  if (walk.span.is_left_out || !has_segment(walk)) return;
  SplitTokens<Shape, true> tokens(p, walk);
  DecayScan scan(p, walk);
  const OutputFactors<Shape> factors(decays + kDecayStages);
  const auto stage_of = [&](int chunk) {
    return AllTiles(begin + stage_number(chunk, p.stages) * AllTiles::kBytes);
  };
  const auto scores_of = [&](int chunk) { return Scores(scores + chunk % 2 * Scores::kBytes); };
  const auto make_scores_of = [&](int chunk) {
    make_split_scores(stage_of(chunk), scores_of(chunk), decays[chunk % kDecayStages], p.scale);
  };
  /// Splits what was fetched, which is this chunk, and fetches the next one.
  const auto arrive = [&](int chunk) {
    tokens.store(stage_of(chunk), memory, walk, chunk);
    hand_to_products();
    tokens.fetch(walk, chunk + 1);
  };

  tokens.fetch(walk, 0);
  for (int chunk = 0; scan.is_mine() && chunk < 2; ++chunk) {
    scan.fetch(walk, chunk);
    scan.sum(decays[chunk]);
  }
  float state[Shape::kKeys / 8][4];
  load_segment_start<Shape, SegmentDecaysOf<Shape, kGated>>(state, p, walk);
  for (int chunk = 0; chunk < p.stages - 1; ++chunk) arrive(chunk);
  wait_for_state<Shape>(state, walk);
  __syncthreads();  // the first chunks and their decays are there
  if (walk.chunks > 0) make_scores_of(0);

  for (int chunk = 0; chunk < walk.chunks; ++chunk) {
    __syncthreads();  // the chunk's P is there, and tiles that came; the last one is done with
    arrive(chunk + p.stages - 1);
    if (scan.is_mine()) scan.fetch(walk, chunk + 2);
    if constexpr (Decays::kOfValues) factors.fetch(p, walk, chunk);
    float outputs[Shape::kChunk / 8][4];
    const Decays& own = decays[chunk % kDecayStages];
    const bool strong = has_strong(own);
    if constexpr (Decays::kPerChannel) {
      if (strong) {
        TokenWalk<Shape, Decays, true>(p, walk, chunk, own)
            .run(state, outputs, stage_of(chunk), p.scale);
      }
    }
    if (!strong) {
      advance_split<Shape>(state, outputs, stage_of(chunk), scores_of(chunk), own, p.scale);
    }
    if constexpr (Decays::kOfValues) factors.apply(outputs);
    tokens.store_outputs(outputs, walk, chunk);
    if constexpr (kKeeps) {
      const Walk again = make_split_walk<Shape, !kKeeps>(p, p.segments);
      store_state<Shape>(state, p, again, snapshot_behind<Shape>(p, again, chunk));
    }
    if (p.stages == 2) __syncthreads();  // the next chunk's tiles are there
    if (chunk + 1 < walk.chunks) make_scores_of(chunk + 1);
    if (scan.is_mine()) scan.sum(decays[(chunk + 2) % kDecayStages]);
  }
  const Walk again =
      make_split_walk<Shape, !kKeeps>(p, p.segments);  // keeping it would take registers
  store_state<Shape>(state, p, again, final_behind(p, again));
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
  SplitTokens<Shape, false> tokens(p, walk);
  DecayScan scan(p, walk);

  tokens.fetch(walk, 0);
  if (scan.is_mine()) scan.fetch(walk, 0);
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
    if (scan.is_mine()) scan.sum(own);
    __syncthreads();  // the chunk's tiles and decays are there; the last but one is done with
    tokens.fetch(walk, chunk + 1);
    if (scan.is_mine()) scan.fetch(walk, chunk + 1);
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
           .block = Shape::kThreads,
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
